// SPDX-License-Identifier: Apache-2.0
//! Builds typed expressions from the JSON's "type value objects". [`crate::expr::simplify`] removes the code that p4c
//! adds for fixed widths: masks around shifts, and casts to the width that a value already has.

use super::cursor::{Cursor, Result};
use super::headers::Headers;
use super::loader::Loader;
use super::references::{FieldName, VALID_FIELD};
use crate::action::{LValue, Param};
use crate::expr::{
    Arith, ArithOp, Bool, CastOp, CmpOp, Constant, Data, HeaderRef, UnionRef, simplify,
};
use crate::ids::{HeaderId, HeaderTypeId, StackId, UnionStackId};

/// Maximum width of a cast in bits. Wider casts are refused.
const MAX_CAST_BITS: u32 = crate::layout::MAX_FIELD_BITS;

/// Maximum depth of an expression. Deeper expressions are refused, because a hostile file could otherwise exhaust the
/// stack.
const MAX_DEPTH: usize = 200;

/// An expression of any type.
pub(super) enum Value {
    Data(Data),
    Bool(Bool),
    Header(HeaderRef, HeaderTypeId),
    Stack(StackId),
    Union(UnionRef, Vec<HeaderTypeId>),
    UnionStack(UnionStackId),
    /// The `varbit` field of a header.
    Varbit(HeaderId),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Data(_) => "an integer",
            Self::Bool(_) => "a boolean",
            Self::Header(..) => "a header",
            Self::Stack(_) => "a header stack",
            Self::Union(..) => "a header union",
            Self::UnionStack(_) => "a header union stack",
            Self::Varbit(_) => "a varbit field",
        }
    }
}

/// Reads expressions. `params` are the action parameters to which the expressions can refer.
#[derive(Clone, Copy)]
pub(super) struct Expressions<'a> {
    pub(super) loader: &'a Loader,
    pub(super) params: &'a [Param],
    depth: usize,
}

impl<'a> Expressions<'a> {
    pub(super) fn new(loader: &'a Loader, params: &'a [Param]) -> Self {
        Self {
            loader,
            params,
            depth: 0,
        }
    }

    fn headers(&self) -> &'a Headers {
        &self.loader.headers
    }

    /// Reads an integer expression and determines its class.
    pub(super) fn arith(&self, json: &Cursor<'_>) -> Result<Arith> {
        self.data(json).map(Arith::from)
    }

    /// Reads an integer expression. A boolean is converted to 0 or 1.
    pub(super) fn data(&self, json: &Cursor<'_>) -> Result<Data> {
        match self.value(json)? {
            Value::Data(data) => Ok(data),
            Value::Bool(condition) => Ok(simplify::from_bool(condition)),
            other => Err(json.error(format!("an integer is expected, not {}", other.kind()))),
        }
    }

    /// Reads a boolean expression. An integer is converted to false if it is 0, else to true.
    pub(super) fn bool(&self, json: &Cursor<'_>) -> Result<Bool> {
        match self.value(json)? {
            Value::Bool(condition) => Ok(condition),
            Value::Data(data) => Ok(simplify::non_zero(data)),
            other => Err(json.error(format!("a boolean is expected, not {}", other.kind()))),
        }
    }

    pub(super) fn header(&self, json: &Cursor<'_>) -> Result<(HeaderRef, HeaderTypeId)> {
        match self.value(json)? {
            Value::Header(header, ty) => Ok((header, ty)),
            other => Err(json.error(format!("a header is expected, not {}", other.kind()))),
        }
    }

    pub(super) fn union(&self, json: &Cursor<'_>) -> Result<(UnionRef, Vec<HeaderTypeId>)> {
        match self.value(json)? {
            Value::Union(union, types) => Ok((union, types)),
            other => Err(json.error(format!("a header union is expected, not {}", other.kind()))),
        }
    }

    /// Reads the target of an assignment.
    pub(super) fn lvalue(&self, json: &Cursor<'_>) -> Result<LValue> {
        match self.data(json)? {
            Data::Field(slot) => Ok(LValue::Field(slot)),
            Data::HeaderField(header, slot) => Ok(LValue::HeaderField(header, slot)),
            _ => Err(json.error("this cannot be assigned to")),
        }
    }

    /// Reads any expression, which is an object with "type" and "value".
    pub(super) fn value(&self, json: &Cursor<'_>) -> Result<Value> {
        if self.depth > MAX_DEPTH {
            return Err(json.unsupported(format!("an expression nested over {MAX_DEPTH} deep")));
        }
        let inner = Self {
            depth: self.depth + 1,
            ..*self
        };
        let ty = json.at("type")?.str()?;
        let value = json.at("value")?;
        let headers = self.headers();
        Ok(match ty {
            "expression" if value.get("op").is_some() => inner.operation(&value)?,
            "expression" => inner.value(&value)?,
            "field" => inner.field(&value)?,
            "hexstr" => Value::Data(Data::Const(value.integer()?.into())),
            "bool" => Value::Bool(Bool::Const(value.bool()?)),
            "local" | "runtime_data" => Value::Data(inner.param(&value)?),
            "header" => {
                let id = headers.header_named(&value)?;
                Value::Header(HeaderRef::Fixed(id), headers.headers[id.index()].ty)
            }
            "header_stack" => Value::Stack(headers.stack_named(&value)?),
            "stack_field" => {
                let stack = headers.stack_named(&value.nth(0)?)?;
                let element = headers.stacks[stack.index()].ty;
                // p4c writes the header `stack.last` like a field with the name `last`.
                let name = value.nth(1)?;
                if name.str()? == "last" && headers.field_index(element, &name).is_err() {
                    return Ok(Value::Header(HeaderRef::Last(stack), element));
                }
                let field = headers.field_index(element, &value.nth(1)?)?;
                let slot = headers
                    .element_slot(element, field)
                    .ok_or_else(|| value.unsupported("a varbit field of a stack element here"))?;
                Value::Data(Data::HeaderField(HeaderRef::Last(stack), slot))
            }
            "header_union" => {
                let id = headers.union_named(&value)?;
                let types = &headers.unions[id.index()].headers;
                let types = types
                    .iter()
                    .map(|id| headers.headers[id.index()].ty)
                    .collect();
                Value::Union(UnionRef::Fixed(id), types)
            }
            "header_union_stack" => Value::UnionStack(headers.union_stack_named(&value)?),
            "register" => {
                let (register, width) = self.loader.register_named(&value.nth(0)?)?;
                let index = inner.arith(&value.nth(1)?)?;
                Value::Data(Data::Register(register, Box::new(index), width))
            }
            other => return Err(json.unsupported(format!("a value of type \"{other}\" here"))),
        })
    }

    fn field(&self, pair: &Cursor<'_>) -> Result<Value> {
        let first = pair.nth(0)?;
        // p4c writes stack[i].isValid() as a pair of an expression and the name of the hidden validity field.
        if first.str().is_err() && pair.nth(1)?.str() == Ok(VALID_FIELD) {
            let header = match self.operation(&first)? {
                Value::Header(header, _) => header,
                other => return Err(first.error(format!("{} has no validity", other.kind()))),
            };
            return Ok(Value::Data(simplify::from_bool(Bool::Valid(header))));
        }
        match self.headers().field_named(pair)? {
            FieldName::Field(_, slot) => Ok(Value::Data(Data::Field(slot))),
            FieldName::Valid(header) => {
                let valid = Bool::Valid(HeaderRef::Fixed(header));
                Ok(Value::Data(simplify::from_bool(valid)))
            }
            FieldName::Varbit(header) => Ok(Value::Varbit(header)),
        }
    }

    fn param(&self, json: &Cursor<'_>) -> Result<Data> {
        let index = json.usize()?;
        let param = self.params.get(index).ok_or_else(|| {
            json.error(format!(
                "parameter {index} of an action with {}",
                self.params.len()
            ))
        })?;
        Ok(Data::Param(param.slot))
    }

    /// Reads an object with "op", "left" and "right".
    fn operation(&self, json: &Cursor<'_>) -> Result<Value> {
        let op = json.at("op")?.str()?;
        let (left, right) = (json.get("left"), json.at("right")?);
        let data = |value| Ok(Value::Data(value));
        let bool = |value| Ok(Value::Bool(value));
        match op {
            "?" => self.choose(json),
            "==" | "!=" | "==h" | "!=h" | "==u" | "!=u" | "==b" | "!=b" => {
                let equal = self.equality(&json.at("left")?, &right)?;
                bool(if op.starts_with('!') {
                    Bool::Not(Box::new(equal))
                } else {
                    equal
                })
            }
            "<" | "<=" | ">" | ">=" => {
                let op = match op {
                    "<" => CmpOp::Lt,
                    "<=" => CmpOp::Le,
                    ">" => CmpOp::Gt,
                    _ => CmpOp::Ge,
                };
                bool(simplify::compare(
                    op,
                    self.data(&json.at("left")?)?,
                    self.data(&right)?,
                ))
            }
            "and" => bool(Bool::And(self.bools(&json.at("left")?, &right)?)),
            "or" => bool(Bool::Or(self.bools(&json.at("left")?, &right)?)),
            "not" => bool(Bool::Not(Box::new(self.bool(&right)?))),
            "valid" => bool(Bool::Valid(self.header(&right)?.0)),
            "valid_union" => bool(Bool::ValidUnion(self.union(&right)?.0)),
            "d2b" => bool(simplify::non_zero(self.data(&right)?)),
            "b2d" => data(simplify::from_bool(self.bool(&right)?)),
            "~" => data(Data::Complement(Box::new(self.data(&right)?))),
            "two_comp_mod" => self.cast(CastOp::TwosComplement, json),
            "usat_cast" => self.cast(CastOp::SaturateUnsigned, json),
            "sat_cast" => self.cast(CastOp::SaturateSigned, json),
            "last_stack_index" => data(Data::LastIndex(self.stack(&right)?)),
            "size_stack" => data(Data::StackSize(self.stack(&right)?)),
            "dereference_header_stack" | "dereference_stack" => {
                let stack = self.stack(&json.at("left")?)?;
                let index = Box::new(self.arith(&right)?);
                let ty = self.headers().stacks[stack.index()].ty;
                Ok(Value::Header(HeaderRef::Element(stack, index), ty))
            }
            "dereference_union_stack" => self.union_element(json),
            "access_field" => self.access_field(json),
            "access_union_header" => self.access_union_header(json),
            _ => {
                let op = arith_op(op)
                    .ok_or_else(|| json.unsupported(format!("the operator \"{op}\"")))?;
                let left = match left {
                    Some(left) => self.data(&left)?,
                    // Unary plus or minus has no left operand.
                    None if matches!(op, ArithOp::Add | ArithOp::Sub) => Data::constant(0),
                    None => return Err(json.error("\"left\" is missing")),
                };
                data(simplify::arith(op, left, self.data(&right)?))
            }
        }
    }

    fn bools(&self, left: &Cursor<'_>, right: &Cursor<'_>) -> Result<Box<(Bool, Bool)>> {
        Ok(Box::new((self.bool(left)?, self.bool(right)?)))
    }

    fn choose(&self, json: &Cursor<'_>) -> Result<Value> {
        let condition = self.bool(&json.at("cond")?)?;
        match (
            self.value(&json.at("left")?)?,
            self.value(&json.at("right")?)?,
        ) {
            (Value::Data(left), Value::Data(right)) => Ok(Value::Data(Data::Choose(Box::new((
                condition, left, right,
            ))))),
            (Value::Bool(left), Value::Bool(right)) => Ok(Value::Bool(Bool::Choose(Box::new((
                condition, left, right,
            ))))),
            (left, right) => Err(json.unsupported(format!(
                "\"?\" between {} and {}",
                left.kind(),
                right.kind()
            ))),
        }
    }

    fn equality(&self, left: &Cursor<'_>, right: &Cursor<'_>) -> Result<Bool> {
        match (self.value(left)?, self.value(right)?) {
            (Value::Data(left), Value::Data(right)) => {
                Ok(simplify::compare(CmpOp::Eq, left, right))
            }
            (Value::Bool(left), Value::Bool(right)) => Ok(Bool::BoolEq(Box::new((left, right)))),
            (Value::Bool(left), Value::Data(right)) => {
                Ok(Bool::BoolEq(Box::new((left, simplify::non_zero(right)))))
            }
            (Value::Data(left), Value::Bool(right)) => {
                Ok(Bool::BoolEq(Box::new((simplify::non_zero(left), right))))
            }
            (Value::Header(l, lt), Value::Header(r, rt)) if lt == rt => {
                Ok(Bool::HeaderEq(Box::new((l, r))))
            }
            (Value::Union(l, lt), Value::Union(r, rt)) if lt == rt => {
                Ok(Bool::UnionEq(Box::new((l, r))))
            }
            (Value::Varbit(l), Value::Varbit(r)) => Ok(Bool::VarbitEq(l, r)),
            (l, r) => Err(left.error(format!("{} is compared with {}", l.kind(), r.kind()))),
        }
    }

    fn cast(&self, op: CastOp, json: &Cursor<'_>) -> Result<Value> {
        let value = self.data(&json.at("left")?)?;
        let right = json.at("right")?;
        match self.data(&right)? {
            Data::Const(width) => match width.to_u32() {
                Some(width) if (1..=MAX_CAST_BITS).contains(&width) => {
                    Ok(Value::Data(simplify::cast(op, value, width)))
                }
                _ => Err(right.unsupported("a cast to that width")),
            },
            _ => Err(right.unsupported("a cast to a width that is not constant")),
        }
    }

    fn stack(&self, json: &Cursor<'_>) -> Result<StackId> {
        match self.value(json)? {
            Value::Stack(stack) => Ok(stack),
            other => Err(json.error(format!("a header stack is expected, not {}", other.kind()))),
        }
    }

    fn union_element(&self, json: &Cursor<'_>) -> Result<Value> {
        let left = json.at("left")?;
        let Value::UnionStack(stack) = self.value(&left)? else {
            return Err(left.error("a header union stack is expected"));
        };
        let index = Box::new(self.arith(&json.at("right")?)?);
        let members = &self.headers().union_stacks[stack.index()].members;
        let types = members.iter().map(|(_, ty)| *ty).collect();
        Ok(Value::Union(UnionRef::Element(stack, index), types))
    }

    fn access_field(&self, json: &Cursor<'_>) -> Result<Value> {
        let (header, ty) = self.header(&json.at("left")?)?;
        let right = json.at("right")?;
        let slot = self
            .headers()
            .element_slot(ty, right.usize()?)
            .ok_or_else(|| right.unsupported("a varbit field, or one that is not there, here"))?;
        Ok(Value::Data(match header {
            HeaderRef::Fixed(id) => {
                Data::Field(slot.moved(self.headers().headers[id.index()].offset))
            }
            other => Data::HeaderField(other, slot),
        }))
    }

    fn access_union_header(&self, json: &Cursor<'_>) -> Result<Value> {
        let (union, types) = self.union(&json.at("left")?)?;
        let right = json.at("right")?;
        let member = right.usize()?;
        let ty = *types
            .get(member)
            .ok_or_else(|| right.error("the union has no such member"))?;
        Ok(Value::Header(HeaderRef::Member(union, member), ty))
    }
}

fn arith_op(op: &str) -> Option<ArithOp> {
    Some(match op {
        "+" => ArithOp::Add,
        "-" => ArithOp::Sub,
        "*" => ArithOp::Mul,
        "/" => ArithOp::Div,
        "%" => ArithOp::Mod,
        "&" => ArithOp::And,
        "|" => ArithOp::Or,
        "^" => ArithOp::Xor,
        "<<" => ArithOp::Shl,
        ">>" => ArithOp::Shr,
        _ => return None,
    })
}

/// Reads a constant as an unsigned 32-bit number, e.g. an id.
pub(super) fn small_constant(json: &Cursor<'_>) -> Result<u32> {
    Constant::from(json.at("value")?.integer()?)
        .to_u32()
        .ok_or_else(|| json.error("a number below 2^32 is expected"))
}
