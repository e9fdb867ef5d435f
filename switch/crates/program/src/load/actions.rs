// SPDX-License-Identifier: Apache-2.0
//! Reads actions and their primitives.

use std::collections::HashMap;

use super::cursor::{Cursor, Result};
use super::expressions::{Expressions, Value, small_constant};
use super::loader::Loader;
use super::references::FieldName;
use crate::action::{Action, LValue, LogPart, Op, Param, registers_of};
use crate::error::SourceInfo;
use crate::expr::{Arith, ArithOp, Data, HeaderRef, simplify};
use crate::ids::{ActionId, FieldListId};
use crate::layout::{FieldSlot, ParamSlot};

/// All actions, and the ids that tables use to refer to them.
pub(super) struct Actions {
    pub(super) actions: Vec<Action>,
    pub(super) ids: HashMap<u32, ActionId>,
}

impl Loader {
    pub(super) fn actions(&self, root: &Cursor<'_>) -> Result<Actions> {
        let mut actions = Actions {
            actions: Vec::new(),
            ids: HashMap::new(),
        };
        for json in root.list("actions")? {
            let id = ActionId::new(actions.actions.len());
            if actions.ids.insert(json.at("id")?.u32()?, id).is_some() {
                return Err(json.error("two actions have this id"));
            }
            actions.actions.push(self.action(&json)?);
        }
        Ok(actions)
    }

    fn action(&self, json: &Cursor<'_>) -> Result<Action> {
        let (params, param_words) = load_params(json)?;
        let expressions = Expressions::new(self, &params);
        let (ops, sources) = expressions.primitives(&json.list("primitives")?)?;
        Ok(Action {
            name: json.name()?,
            params,
            param_words,
            registers: registers_of(&ops),
            ops,
            sources,
        })
    }
}

fn load_params(json: &Cursor<'_>) -> Result<(Vec<Param>, usize)> {
    let mut params = Vec::new();
    let mut words = 0;
    for param in json.list("runtime_data")? {
        let width = param.at("bitwidth")?.width()?;
        let word = u16::try_from(words).map_err(|_| param.unsupported("so many parameters"))?;
        let slot = ParamSlot { word, width };
        words += slot.words();
        params.push(Param {
            name: param.name()?,
            slot,
        });
    }
    Ok((params, words))
}

impl Expressions<'_> {
    /// Reads a list of primitives. Refuses jumps out of the list.
    pub(super) fn primitives(
        &self,
        list: &[Cursor<'_>],
    ) -> Result<(Vec<Op>, Vec<Option<SourceInfo>>)> {
        let mut ops = Vec::new();
        for json in list {
            let op = self.primitive(json)?;
            if let Op::Jump(target) | Op::JumpUnless(_, target) = op
                && target > list.len()
            {
                return Err(json.error(format!("a jump to {target} leaves the action")));
            }
            ops.push(op);
        }
        Ok((ops, list.iter().map(Cursor::source).collect()))
    }

    /// Reads one primitive call.
    pub(super) fn primitive(&self, json: &Cursor<'_>) -> Result<Op> {
        let name = json.at("op")?.str()?;
        let args = Arguments {
            at: json,
            items: json.list("parameters")?,
            expressions: self,
        };
        let op = match name {
            "assign" | "modify_field" => args.assign()?,
            // P4_14's arithmetic primitives. For P4_16, p4c writes expressions instead.
            "add_to_field" => args.compute(ArithOp::Add, 0, 1)?,
            "subtract_from_field" => args.compute(ArithOp::Sub, 0, 1)?,
            "add" => args.compute(ArithOp::Add, 1, 2)?,
            "subtract" => args.compute(ArithOp::Sub, 1, 2)?,
            "bit_and" => args.compute(ArithOp::And, 1, 2)?,
            "bit_or" => args.compute(ArithOp::Or, 1, 2)?,
            "bit_xor" => args.compute(ArithOp::Xor, 1, 2)?,
            "shift_left" => args.compute(ArithOp::Shl, 1, 2)?,
            "shift_right" => args.compute(ArithOp::Shr, 1, 2)?,
            "assign_VL" => Op::AssignVarbit(args.varbit(0)?, args.varbit(1)?),
            "assign_header" | "copy_header" => {
                let ((to, to_type), (from, from_type)) = (args.header(0)?, args.header(1)?);
                if to_type != from_type {
                    return Err(json.error("a header is assigned to one of another type"));
                }
                Op::AssignHeader(to, from)
            }
            "assign_union" => Op::AssignUnion(args.union(0)?, args.union(1)?),
            "assign_header_stack" => args.assign_stack()?,
            "assign_union_stack" => args.assign_union_stack()?,
            "add_header" | "add_header_fast" => Op::AddHeader(args.header(0)?.0),
            "remove_header" => Op::RemoveHeader(args.header(0)?.0),
            "push" | "pop" => args.shift_stack(name == "push")?,
            "_jump" => Op::Jump(small_constant(args.get(0)?)? as usize),
            "_jump_if_zero" => Op::JumpUnless(
                self.bool(args.get(0)?)?,
                small_constant(args.get(1)?)? as usize,
            ),
            "exit" => Op::Exit,
            "no_op" => Op::Log(Vec::new(), Vec::new()),
            "mark_to_drop" | "drop" => Op::MarkToDrop(args.metadata_copy()?),
            "count" => Op::Count(
                self.loader
                    .counter_named(&args.named(0, "counter_array")?)?,
                args.arith(1)?,
            ),
            "execute_meter" => Op::ExecuteMeter(
                self.loader.meter_named(&args.named(0, "meter_array")?)?,
                args.arith(1)?,
                args.lvalue(2)?,
            ),
            "register_read" => Op::RegisterRead(
                args.lvalue(0)?,
                self.loader
                    .register_named(&args.named(1, "register_array")?)?
                    .0,
                args.arith(2)?,
            ),
            "register_write" => Op::RegisterWrite(
                self.loader
                    .register_named(&args.named(0, "register_array")?)?
                    .0,
                args.arith(1)?,
                args.arith(2)?,
            ),
            "modify_field_with_hash_based_offset" => Op::Hash {
                target: args.lvalue(0)?,
                base: args.arith(1)?,
                calculation: self
                    .loader
                    .calculation_named(&args.named(2, "calculation")?)?,
                max: args.arith(3)?,
            },
            "modify_field_rng_uniform" => {
                Op::Random(args.lvalue(0)?, args.arith(1)?, args.arith(2)?)
            }
            "generate_digest" => Op::Digest(args.digest(1)?),
            "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => Op::Clone {
                session: args.arith(0)?,
                preserve: args.field_list(1)?,
            },
            "resubmit" => Op::Resubmit(args.field_list(0)?),
            "recirculate" => Op::Recirculate(args.field_list(0)?),
            "truncate" => Op::Truncate(args.arith(0)?),
            "assert" | "assume" => Op::Assert(self.bool(args.get(0)?)?),
            "log_msg" => args.log()?,
            other => return Err(json.unsupported(format!("the primitive \"{other}\""))),
        };
        Ok(op)
    }
}

/// Arguments of a primitive call.
struct Arguments<'e, 'j, 'p> {
    at: &'e Cursor<'j>,
    items: Vec<Cursor<'j>>,
    expressions: &'e Expressions<'p>,
}

impl<'j> Arguments<'_, 'j, '_> {
    fn get(&self, index: usize) -> Result<&Cursor<'j>> {
        self.items.get(index).ok_or_else(|| {
            self.at
                .error(format!("at least {} parameters are expected", index + 1))
        })
    }

    fn arith(&self, index: usize) -> Result<Arith> {
        self.expressions.arith(self.get(index)?)
    }

    fn lvalue(&self, index: usize) -> Result<LValue> {
        self.expressions.lvalue(self.get(index)?)
    }

    fn header(&self, index: usize) -> Result<(HeaderRef, crate::ids::HeaderTypeId)> {
        self.expressions.header(self.get(index)?)
    }

    fn union(&self, index: usize) -> Result<crate::expr::UnionRef> {
        self.expressions
            .union(self.get(index)?)
            .map(|(union, _)| union)
    }

    /// Returns the name in the argument at `index`, which must have the type `ty`.
    fn named(&self, index: usize, ty: &str) -> Result<Cursor<'j>> {
        let json = self.get(index)?;
        if json.at("type")?.str()? != ty {
            return Err(json.error(format!("a parameter of type \"{ty}\" is expected")));
        }
        json.at("value")
    }

    /// Reads an assignment. An assignment between slots of equal width becomes a copy of bits.
    fn assign(&self) -> Result<Op> {
        let target = self.lvalue(0)?;
        let value = self.arith(1)?;
        Ok(match (&target, &value.data) {
            (LValue::Field(to), Data::Field(from)) if to.width == from.width => Op::Move {
                to: *to,
                from: *from,
            },
            _ => Op::Assign(target, value),
        })
    }

    /// Reads the arguments `left` and `right`, and assigns the result of `op` to argument 0.
    fn compute(&self, op: ArithOp, left: usize, right: usize) -> Result<Op> {
        let operand = |index| self.expressions.data(self.get(index)?);
        let value = simplify::arith(op, operand(left)?, operand(right)?);
        Ok(Op::Assign(self.lvalue(0)?, Arith::from(value)))
    }

    /// Returns the slots that a call of `mark_to_drop` changes, or `None` if the call changes the standard metadata
    /// itself.
    fn metadata_copy(&self) -> Result<Option<(FieldSlot, Option<FieldSlot>)>> {
        if self.items.is_empty() {
            return Ok(None);
        }
        let name = self.named(0, "header")?;
        if name.str()? == "standard_metadata" {
            return Ok(None);
        }
        let headers = &self.expressions.loader.headers;
        let header = headers.header_named(&name)?;
        let fields = &headers.types[headers.headers[header.index()].ty.index()].fields;
        let slot = |field| {
            let index = fields
                .iter()
                .position(|candidate| candidate.name == field)?;
            Some(headers.slot(header, index)).filter(|slot| slot.width <= 64)
        };
        let egress_spec = slot("egress_spec")
            .ok_or_else(|| name.error("this is no copy of the standard metadata"))?;
        Ok(Some((egress_spec, slot("mcast_grp"))))
    }

    fn varbit(&self, index: usize) -> Result<HeaderRef> {
        let json = self.get(index)?;
        let pair = json.at("value")?;
        match json.at("type")?.str()? {
            "field" => match self.expressions.loader.headers.field_named(&pair)? {
                FieldName::Varbit(header) => Ok(HeaderRef::Fixed(header)),
                _ => Err(json.error("a varbit field is expected")),
            },
            _ => Err(json.unsupported("a varbit field reached this way")),
        }
    }

    fn assign_stack(&self) -> Result<Op> {
        let headers = &self.expressions.loader.headers;
        let (to, from) = (self.get(0)?, self.get(1)?);
        match (self.expressions.value(to)?, self.expressions.value(from)?) {
            (Value::Stack(l), Value::Stack(r)) => {
                let (left, right) = (&headers.stacks[l.index()], &headers.stacks[r.index()]);
                if left.ty != right.ty || left.headers.len() != right.headers.len() {
                    return Err(self.at.error("stacks of different types are assigned"));
                }
                Ok(Op::AssignStack(l, r))
            }
            _ => Err(self.at.error("two header stacks are expected")),
        }
    }

    fn assign_union_stack(&self) -> Result<Op> {
        let (to, from) = (self.get(0)?, self.get(1)?);
        match (self.expressions.value(to)?, self.expressions.value(from)?) {
            (Value::UnionStack(l), Value::UnionStack(r)) => Ok(Op::AssignUnionStack(l, r)),
            _ => Err(self.at.error("two header union stacks are expected")),
        }
    }

    fn shift_stack(&self, push: bool) -> Result<Op> {
        let count = self.arith(1)?;
        match (self.expressions.value(self.get(0)?)?, push) {
            (Value::Stack(stack), true) => Ok(Op::Push(stack, count)),
            (Value::Stack(stack), false) => Ok(Op::Pop(stack, count)),
            (Value::UnionStack(stack), true) => Ok(Op::PushUnion(stack, count)),
            (Value::UnionStack(stack), false) => Ok(Op::PopUnion(stack, count)),
            _ => Err(self.at.error("a header stack is expected")),
        }
    }

    fn digest(&self, index: usize) -> Result<crate::ids::DigestId> {
        let json = self.get(index)?;
        let id = small_constant(json)?;
        let digests = &self.expressions.loader.digests;
        digests
            .get(&id)
            .copied()
            .ok_or_else(|| json.error(format!("there is no digest {id}")))
    }

    /// Reads a field list. The id 0 means that there is no list.
    fn field_list(&self, index: usize) -> Result<Option<FieldListId>> {
        let Some(json) = self.items.get(index) else {
            return Ok(None);
        };
        let id = small_constant(json)?;
        let lists = &self.expressions.loader.field_lists;
        match (lists.get(&id), id) {
            (Some(list), _) => Ok(Some(*list)),
            (None, 0) => Ok(None),
            (None, _) => Err(json.error(format!("there is no field list {id}"))),
        }
    }

    /// Reads `log_msg(format, {arguments})`. Each `{}` in the format stands for the next argument.
    fn log(&self) -> Result<Op> {
        let format = self.named(0, "string")?;
        let arguments = match self.items.get(1) {
            Some(_) => self.named(1, "parameters_vector")?.items_or_nothing()?,
            None => Vec::new(),
        };
        let mut parts = Vec::new();
        let mut rest = format.str()?;
        let mut used = 0;
        while let Some(open) = rest.find('{') {
            let close = rest[open..]
                .find('}')
                .ok_or_else(|| format.error("a \"{\" without \"}\" in the format"))?;
            parts.push(LogPart::Text(rest[..open].to_owned()));
            parts.push(LogPart::Argument(used));
            used += 1;
            rest = &rest[open + close + 1..];
        }
        parts.push(LogPart::Text(rest.to_owned()));
        if used != arguments.len() {
            let given = arguments.len();
            return Err(format.error(format!("the format takes {used} arguments, not {given}")));
        }
        let arguments = arguments
            .iter()
            .map(|argument| self.expressions.arith(argument))
            .collect::<Result<_>>()?;
        Ok(Op::Log(parts, arguments))
    }
}
