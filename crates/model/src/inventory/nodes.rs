//! Entries about the presence of nodes: joining, absences, conclusions.

use super::*;

impl Inventory {
    pub(super) fn accept_node(&mut self, at: &ApplyContext, spec: &NodeSpec, role: ClusterRole) -> Decision {
        self.not_denied(spec)?;
        self.not_a_copy(spec)?;
        match self.identify(spec)? {
            NodeMembership::Member(node) => return self.join_again(at, node.id, spec),
            NodeMembership::Left(left) => return self.come_back(at, left.node.id, spec, role),
            NodeMembership::Removed(_) | NodeMembership::Unknown => self.may_join(spec)?,
        }
        let id = NodeId(at.index);
        let node = Node {
            id,
            spec: spec.clone(),
            accepted: at.entry.at,
            role,
            raft: None,
            removing: None,
            availability: if spec.drain { Availability::Drain } else { Availability::Active },
            lifecycle: Lifecycle::Accepted,
            failed: None,
            maintenance: None,
            hold: None,
            host_key: HostKeyState::default(),
            examination: NodeExamination {
                seen: at.entry.at,
                invalidated_at_index: at.index,
                ..NodeExamination::default()
            },
            absence: None,
            absences: AbsenceHistory::default(),
            setup: NodeSetup::default(),
            pending_resetup: None,
            job: None,
            awaiting_role_decision: false,
        };
        if let NodeMembership::Removed(_) = self.membership_by_name(spec.name.as_str()) {
            self.moved_at_index = at.index; // configuration rendered with the address of that name is outdated now
        }
        self.names.insert(spec.name.clone(), id);
        self.nodes.insert(id, Arc::new(node));
        self.note(at, Some(id), JournalEvent::Accepted { name: spec.name.clone() });
        Ok(Applied::Node(id))
    }

    /// Accepts a node of the cluster that joins again. Its data directory is empty, or an earlier
    /// answer was lost.
    fn join_again(&mut self, at: &ApplyContext, id: NodeId, spec: &NodeSpec) -> Decision {
        let known = self.change(id)?;
        let (api, gossip) = (known.spec.api.clone(), known.spec.gossip.clone());
        let zone = if spec.zone.is_empty() { known.spec.zone.clone() } else { spec.zone.clone() };
        known.spec = NodeSpec { api, gossip, zone, ..spec.clone() };
        // A joining machine has an empty data directory. So it must not vote under the Raft id
        // under which it may have voted before.
        known.raft = None;
        self.move_to(at, id, &spec.api, &spec.gossip)?;
        self.expired_certificates.remove(&id);
        Ok(Applied::Node(id))
    }

    pub(super) fn absence_entry(&mut self, at: &ApplyContext) -> Decision {
        match at.command {
            Command::AbsenceOpened { node, no, last_seen, seen_by, gone, planned, returned } => {
                let id = *node;
                let node = self.change(id)?;
                if node.absence.is_some() || *no != AbsenceNo(node.absences.count.0 + 1) {
                    return Err(Refusal::new("absence-known", format!("absence {no} was opened already")));
                }
                let planned = *planned || node.in_maintenance(at.entry.at);
                node.absences.count = *no;
                node.examination.invalidated_at_index = at.index;
                node.absences.recent.push(at.entry.at);
                if node.absences.recent.len() > 16 {
                    node.absences.recent.remove(0);
                }
                node.absence = Some(Absence {
                    no: *no,
                    opened: at.entry.at,
                    last_seen: *last_seen,
                    seen_by: seen_by.clone(),
                    kind: *gone,
                    before: node.examination.last_identity.clone().unwrap_or_default(),
                    returned: returned.as_ref().map(|_| at.entry.at),
                    after: returned.clone(),
                    planned,
                });
                // An undo that has not begun is dropped, because an undo runs immediately or not at
                // all.
                let undo = node.pending_resetup.take_if(|w| w.spec.undo.is_some()).is_some();
                let retrospect = returned.is_some();
                let what = JournalEvent::Away {
                    absence: *no,
                    last_seen: *last_seen,
                    gone: *gone,
                    seen_by: seen_by.clone(),
                    retrospect,
                };
                self.note(at, Some(id), what);
                if undo {
                    let why = "the node went away before its undo began".to_owned();
                    self.note(at, Some(id), JournalEvent::WantDropped { why });
                }
                Ok(Applied::Done)
            }
            Command::SetAbsenceKind { node, no, gone } => {
                let id = *node;
                let absence = self.absence(id, *no)?;
                if absence.kind == *gone || absence.returned.is_some() {
                    return Err(Refusal::new("nothing-new", "known already"));
                }
                absence.kind = *gone;
                self.note(at, Some(id), JournalEvent::Gone { absence: *no, gone: *gone });
                Ok(Applied::Done)
            }
            Command::Returned { node, no, after } => {
                let id = *node;
                let absence = self.absence(id, *no)?;
                if absence.returned.is_some() {
                    return Err(Refusal::new("nothing-new", "it has returned already"));
                }
                absence.returned = Some(at.entry.at);
                absence.after = Some(after.clone());
                self.change(id)?.examination.invalidated_at_index = at.index;
                self.note(at, Some(id), JournalEvent::Returned { absence: *no });
                Ok(Applied::Done)
            }
            Command::AwayAgain { node, no } => {
                let absence = self.absence(*node, *no)?;
                if absence.returned.take().is_none() {
                    return Err(Refusal::new("nothing-new", "it has not returned"));
                }
                Ok(Applied::Done)
            }
            Command::Inconclusive { node, .. } => {
                let node = self.change(*node)?;
                node.examination.consecutive_inconclusive += 1;
                Ok(Applied::Done)
            }
            Command::Conclude { node, finding } => self.conclude(at, *node, finding),
            other => unreachable!("{other:?} is no entry about an absence"),
        }
    }

    fn absence(&mut self, node: NodeId, no: AbsenceNo) -> Result<&mut Absence, Refusal> {
        match &mut self.change(node)?.absence {
            Some(absence) if absence.no == no => Ok(absence),
            _ => Err(Refusal::new("absence-closed", format!("absence {no} of node {node} is not open"))),
        }
    }

    /// Records the verdict and ends the absence, so that each absence has exactly one verdict
    /// (invariant I11).
    fn conclude(&mut self, at: &ApplyContext, id: NodeId, finding: &Finding) -> Decision {
        let node = self.change(id)?;
        match (&node.absence, finding.absence) {
            (Some(absence), Some(no)) if absence.no == no => {}
            (None, None) => {}
            _ => {
                return Err(Refusal::new(
                    "absence-closed",
                    "this absence has a verdict already, or another absence is open",
                ));
            }
        }
        if finding.basis < node.examination.invalidated_at_index {
            return Err(Refusal::new("outlived", "the node changed after this examination had begun"));
        }
        let fault = (finding.cause == Some(AbsenceCause::Agent)).then(|| {
            node.absences.agent_faults += 1;
            node.absences.agent_faults
        });
        if node.job.is_none() && finding.verdict == Verdict::Same {
            node.failed = None;
        }
        node.absence = None;
        node.examination.invalidated_at_index = at.index;
        node.examination.needs_examination = false;
        node.examination.drifted_since = match &finding.verdict {
            Verdict::Unknown(_) => node.examination.drifted_since,
            verdict if verdict.is_drifted() => node.examination.drifted_since.or(Some(finding.at)),
            _ => None,
        };
        node.examination.last_identity = Some(finding.identity.clone());
        node.examination.seen = at.entry.at;
        node.examination.consecutive_inconclusive = if matches!(finding.verdict, Verdict::Unknown(_)) {
            node.examination.consecutive_inconclusive + 1
        } else {
            0
        };
        node.examination.finding = Some(finding.clone());
        let services = match &finding.planned_action {
            PlannedAction::Resetup(services) => Some(services.clone()),
            PlannedAction::Held(_) if finding.verdict.is_drifted() => Some(actionable_services(&finding.reasons)),
            _ => None,
        };
        if let Some(services) = services
            && node.job.is_none()
            && node.lifecycle == Lifecycle::Commissioned
            && node.pending_resetup.as_ref().is_none_or(|w| w.spec.by.is_none())
        {
            let spec = JobSpec { reasons: finding.reasons.clone(), services, ..JobSpec::new(finding.trigger) };
            let examined = Some(finding.at);
            node.pending_resetup = Some(ResetupRequest { examined, ..spec.into_request(at.entry.at) });
        } else if !matches!(finding.verdict, Verdict::Unknown(_))
            && !matches!(finding.planned_action, PlannedAction::Blocked(_))
        {
            // An automatic request that is based on an older examination is dropped. A request of a
            // rollout stays, because no examination is its basis.
            node.pending_resetup = node.pending_resetup.take().filter(|w| w.spec.by.is_some() || w.examined.is_none());
        }
        if let PlannedAction::Held(why) = &finding.planned_action {
            let until = at.entry.at.plus_ms(self.limits().flap_hold_ms);
            let node = self.change(id)?;
            node.hold = Some(Hold { why: why.clone(), since: at.entry.at, until: Some(until) });
        }
        self.note(at, Some(id), JournalEvent::Concluded { finding: Box::new(finding.clone()) });
        if let Some(count) = fault {
            self.note(at, Some(id), JournalEvent::AgentFault { cause: AbsenceCause::Agent, count });
        }
        Ok(Applied::Done)
    }
}

/// The services with an actionable reason.
fn actionable_services(reasons: &[Reason]) -> Vec<ServiceName> {
    let names: std::collections::BTreeSet<_> =
        reasons.iter().filter(|r| r.actionable).map(|r| r.service.clone()).collect();
    names.into_iter().collect()
}
