// SPDX-License-Identifier: Apache-2.0
//! Reads parser states, value sets and the deparser.

use std::collections::HashMap;

use num_traits::ToPrimitive;

use super::cursor::{Cursor, Result};
use super::expressions::Expressions;
use super::loader::Loader;
use super::references::FieldName;
use crate::action::Op;
use crate::expr::{Arith, Data};
use crate::externs::ValueSet;
use crate::ids::{HeaderTypeId, StateId, ValueSetId};
use crate::parser::{
    Deparser, ExtractTo, KeyPart, Parser, ParserOp, State, Target, Transition, TransitionMatch,
};

pub(super) struct Parsers {
    pub(super) parser: Parser,
    pub(super) states: Vec<State>,
    pub(super) value_sets: Vec<ValueSet>,
}

type StateNames<'a> = HashMap<&'a str, StateId>;

impl Loader {
    /// Reads the first parser. v1model programs have only one.
    pub(super) fn parsers(&self, root: &Cursor<'_>) -> Result<Parsers> {
        let (mut value_sets, set_names) = load_value_sets(root)?;
        let json = root.at("parsers")?.nth(0)?;
        let list = json.at("parse_states")?.items()?;
        let mut names = HashMap::new();
        for (index, state) in list.iter().enumerate() {
            names.insert(state.at("name")?.str()?, StateId::new(index));
        }
        let mut states = Vec::new();
        for state in &list {
            states.push(self.state(state, &names, &set_names, &mut value_sets)?);
        }
        let start = target(json.get("init_state").as_ref(), &names)?;
        let parser = Parser {
            name: json.name()?,
            start,
        };
        Ok(Parsers {
            parser,
            states,
            value_sets,
        })
    }

    fn state(
        &self,
        json: &Cursor<'_>,
        names: &StateNames<'_>,
        set_names: &HashMap<String, ValueSetId>,
        sets: &mut [ValueSet],
    ) -> Result<State> {
        let mut ops = Vec::new();
        for op in json.list("parser_ops")? {
            ops.push(self.parser_op(&op)?);
        }
        let key: Vec<KeyPart> = json
            .list("transition_key")?
            .iter()
            .map(|part| self.key_part(part))
            .collect::<Result<_>>()?;
        let key_bytes = key.iter().map(KeyPart::bytes).sum();
        let mut transitions = Vec::new();
        let mut default = None;
        for transition in json.list("transitions")? {
            let next = target(transition.get("next_state").as_ref(), names)?;
            // Files of older versions have the "default" in "value", and have no "type".
            let ty = match transition.get("type") {
                Some(ty) => ty.str()?,
                None if transition.at("value")?.str()? == "default" => "default",
                None => "hexstr",
            };
            let mask = transition
                .get("mask")
                .map(|mask| mask.hex_bytes(key_bytes))
                .transpose()?;
            let matches = match ty {
                "default" => {
                    default = Some(next);
                    continue;
                }
                "hexstr" => {
                    let mask = mask.unwrap_or_else(|| vec![0xff; key_bytes]);
                    let mut value = transition.at("value")?.hex_bytes(key_bytes)?;
                    value
                        .iter_mut()
                        .zip(&mask)
                        .for_each(|(value, mask)| *value &= mask);
                    TransitionMatch::Value { value, mask }
                }
                "parse_vset" => {
                    let name = transition.at("value")?;
                    let id = *set_names
                        .get(name.str()?)
                        .ok_or_else(|| name.error("there is no parser value set with this name"))?;
                    sets[id.index()].components = key.iter().map(KeyPart::width).collect();
                    TransitionMatch::ValueSet(id, mask)
                }
                other => return Err(transition.unsupported(format!("a transition on \"{other}\""))),
            };
            transitions.push(Transition { matches, next });
        }
        Ok(State {
            name: json.name()?,
            ops,
            key,
            key_bytes,
            transitions,
            default,
            source: json.source(),
        })
    }

    fn parser_op(&self, json: &Cursor<'_>) -> Result<ParserOp> {
        let expressions = Expressions::new(self, &[]);
        let args = json.at("parameters")?;
        let op = json.at("op")?.str()?;
        Ok(match op {
            "extract" => {
                let (to, ty) = self.extract_to(&args.nth(0)?)?;
                if self.headers.types[ty.index()].varbit.is_some() {
                    return Err(json.unsupported("extract of a varbit header without a length"));
                }
                ParserOp::Extract(to)
            }
            "extract_VL" => {
                let (to, ty) = self.extract_to(&args.nth(0)?)?;
                if self.headers.types[ty.index()].varbit.is_none() {
                    return Err(json.error("extract_VL of a header that has no varbit field"));
                }
                ParserOp::ExtractVarbit(to, expressions.arith(&args.nth(1)?)?)
            }
            "set" => self.set(&args)?,
            "verify" => ParserOp::Verify(
                expressions.bool(&args.nth(0)?)?,
                expressions.arith(&args.nth(1)?)?,
            ),
            "shift" => {
                let bytes = args.nth(0)?.u32()?;
                ParserOp::Advance(Arith::from(Data::constant(i128::from(bytes) * 8)))
            }
            "advance" => ParserOp::Advance(expressions.arith(&args.nth(0)?)?),
            "primitive" => {
                let primitive = args.nth(0)?;
                match expressions.primitive(&primitive)? {
                    Op::Jump(_) | Op::JumpUnless(..) => {
                        return Err(primitive.unsupported("a jump in a parser state"));
                    }
                    op => ParserOp::Run(Box::new(op)),
                }
            }
            other => return Err(json.unsupported(format!("the parser operation \"{other}\""))),
        })
    }

    fn set(&self, args: &Cursor<'_>) -> Result<ParserOp> {
        let expressions = Expressions::new(self, &[]);
        let (target, source) = (args.nth(0)?, args.nth(1)?);
        if source.at("type")?.str()? == "lookahead" {
            let pair = source.at("value")?;
            return Ok(ParserOp::Lookahead {
                target: self.headers.slot_named(&target.at("value")?)?,
                offset: pair.nth(0)?.u32()?,
                width: u32::from(pair.nth(1)?.width()?),
            });
        }
        if let (Ok("field"), Ok("field")) = (target.at("type")?.str(), source.at("type")?.str())
            && let (FieldName::Varbit(to), FieldName::Varbit(from)) = (
                self.headers.field_named(&target.at("value")?)?,
                self.headers.field_named(&source.at("value")?)?,
            )
        {
            use crate::expr::HeaderRef::Fixed;
            return Ok(ParserOp::Run(Box::new(Op::AssignVarbit(
                Fixed(to),
                Fixed(from),
            ))));
        }
        let op = Op::Assign(expressions.lvalue(&target)?, expressions.arith(&source)?);
        Ok(ParserOp::Run(Box::new(op)))
    }

    fn extract_to(&self, json: &Cursor<'_>) -> Result<(ExtractTo, HeaderTypeId)> {
        let value = json.at("value")?;
        let headers = &self.headers;
        match json.at("type")?.str()? {
            "regular" => {
                let id = headers.header_named(&value)?;
                let header = &headers.headers[id.index()];
                if header.metadata {
                    return Err(json.error("metadata cannot be extracted"));
                }
                Ok((ExtractTo::Header(id), header.ty))
            }
            "stack" => {
                let id = headers.stack_named(&value)?;
                Ok((ExtractTo::Stack(id), headers.stacks[id.index()].ty))
            }
            "union_stack" => {
                let id = headers.union_stack_named(&value.nth(0)?)?;
                let name = value.nth(1)?;
                let (member, ty) = headers.union_member(id, &name)?;
                Ok((ExtractTo::UnionStack(id, member), ty))
            }
            other => Err(json.unsupported(format!("extract into \"{other}\""))),
        }
    }

    fn key_part(&self, json: &Cursor<'_>) -> Result<KeyPart> {
        let value = json.at("value")?;
        let headers = &self.headers;
        Ok(match json.at("type")?.str()? {
            "field" => KeyPart::Field(headers.slot_named(&value)?),
            "stack_field" => {
                let stack = headers.stack_named(&value.nth(0)?)?;
                let ty = headers.stacks[stack.index()].ty;
                KeyPart::StackLast(stack, headers.relative_slot(ty, &value.nth(1)?)?)
            }
            "union_stack_field" => {
                let stack = headers.union_stack_named(&value.nth(0)?)?;
                let (member, ty) = headers.union_member(stack, &value.nth(1)?)?;
                let slot = headers.relative_slot(ty, &value.nth(2)?)?;
                KeyPart::UnionStackLast(stack, member, slot)
            }
            "lookahead" => {
                KeyPart::Lookahead(value.nth(0)?.u32()?, u32::from(value.nth(1)?.width()?))
            }
            other => return Err(json.unsupported(format!("a transition key of type \"{other}\""))),
        })
    }

    pub(super) fn deparser(&self, root: &Cursor<'_>) -> Result<Deparser> {
        let json = root.at("deparsers")?.nth(0)?;
        let mut order = Vec::new();
        for name in json.list("order")? {
            let id = self.headers.header_named(&name)?;
            if self.headers.headers[id.index()].metadata {
                return Err(name.error("metadata cannot be emitted"));
            }
            order.push(id);
        }
        let expressions = Expressions::new(self, &[]);
        let (ops, _) = expressions.primitives(&json.list("primitives")?)?;
        Ok(Deparser { order, ops })
    }
}

impl super::headers::Headers {
    fn union_member(
        &self,
        stack: crate::ids::UnionStackId,
        name: &Cursor<'_>,
    ) -> Result<(usize, HeaderTypeId)> {
        let text = name.str()?;
        let members = &self.union_stacks[stack.index()].members;
        let member = members
            .iter()
            .position(|(known, _)| known == text)
            .ok_or_else(|| name.error(format!("the union has no member {text}")))?;
        Ok((member, members[member].1))
    }

    fn relative_slot(
        &self,
        ty: HeaderTypeId,
        name: &Cursor<'_>,
    ) -> Result<crate::layout::FieldSlot> {
        let field = self.field_index(ty, name)?;
        self.element_slot(ty, field)
            .ok_or_else(|| name.unsupported("a varbit field here"))
    }
}

impl KeyPart {
    fn width(&self) -> u16 {
        match self {
            Self::Field(slot) | Self::StackLast(_, slot) | Self::UnionStackLast(_, _, slot) => {
                slot.width
            }
            Self::Lookahead(_, width) => *width as u16,
        }
    }

    /// Returns the number of bytes of this component in the padded key.
    pub fn bytes(&self) -> usize {
        usize::from(self.width()).div_ceil(8)
    }
}

fn target(name: Option<&Cursor<'_>>, names: &StateNames<'_>) -> Result<Target> {
    let Some(name) = name else {
        return Ok(Target::Accept);
    };
    let text = name.str()?;
    let id = names
        .get(text)
        .ok_or_else(|| name.error(format!("there is no state {text}")))?;
    Ok(Target::State(*id))
}

fn load_value_sets(root: &Cursor<'_>) -> Result<(Vec<ValueSet>, HashMap<String, ValueSetId>)> {
    let mut sets = Vec::new();
    let mut names = HashMap::new();
    for json in root.list("parse_vsets")? {
        let name = json.name()?;
        names.insert(name.clone(), ValueSetId::new(sets.len()));
        let max_size = match json.get("max_size") {
            Some(size) if size.str().is_ok() => size.integer()?.to_usize().unwrap_or(usize::MAX),
            Some(size) => size.usize()?,
            None => usize::MAX,
        };
        let width = json.at("compressed_bitwidth")?.u32()?;
        sets.push(ValueSet {
            name,
            width,
            max_size,
            components: Vec::new(),
        });
    }
    Ok((sets, names))
}
