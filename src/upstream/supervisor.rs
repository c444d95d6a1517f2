//! The root actor that starts upstream actors and outlives their failures (rules R2, R3).
//!
//! kameo restarts a child that panics, up to five times in a minute; the mailbox, and what lives in
//! [`UpstreamShared`], survive. Beyond that the supervisor marks the upstream failed, so that calls are
//! refused `upstream_down`, and starts it anew from its own timer, with a backoff. One supervisor is bound to
//! one runtime: its upstreams live there, restarted ones too. A daemon has one a runtime thread.

use super::actor::{Args, UpstreamActor};
use super::connection::Connection;
use super::gates::Gates;
use super::shared::UpstreamShared;
use kameo::actor::{Actor, ActorId, ActorRef, Spawn, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible};
use kameo::mailbox;
use kameo::message::{Context, Message};
use kameo::supervision::RestartPolicy;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Calls refused before others have their turn.
const SLICE: usize = 256;
const RESTARTS: u32 = 5;
const WITHIN: Duration = Duration::from_secs(60);
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What starts upstreams on one runtime.
#[derive(Clone)]
pub struct Supervisor {
    root: ActorRef<Root>,
    gates: Arc<Gates>,
    seed: Arc<AtomicU64>,
}

impl Supervisor {
    /// Starts the root actor on `runtime`; `seed` feeds every choice at random of its upstreams.
    pub fn start(runtime: &tokio::runtime::Handle, gates: Arc<Gates>, seed: u64) -> Self {
        let _here = runtime.enter();
        // Unbounded: only the start of an upstream, its death and its respawn are told here, so it holds at
        // most a few messages an upstream of the config.
        let root = Root::spawn_with_mailbox(seed, mailbox::unbounded());
        Supervisor { root, gates, seed: Arc::new(AtomicU64::new(seed)) }
    }

    pub fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// Has an upstream's actor started. Its calls wait in the submit ring until it is there.
    pub(super) fn adopt(&self, shared: &Arc<UpstreamShared>, connection: &Arc<dyn Connection>) {
        let seed = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        // Weak, because kameo keeps the recipe of a child for as long as the supervisor lives.
        let recipe = Recipe {
            shared: Arc::downgrade(shared),
            connection: Arc::downgrade(connection),
            gates: self.gates.clone(),
            seed,
        };
        if self.root.tell(Adopt { recipe, rest: FIRST_REST }).try_send().is_err() {
            // The runtime is being shut down: nothing will run here any more.
            shared.close();
        }
    }
}

/// How an upstream's actor is made, again and again.
#[derive(Clone)]
struct Recipe {
    shared: Weak<UpstreamShared>,
    connection: Weak<dyn Connection>,
    gates: Arc<Gates>,
    seed: u64,
}

impl Recipe {
    fn args(&self) -> Args {
        Args {
            shared: self.shared.upgrade(),
            connection: self.connection.upgrade(),
            gates: self.gates.clone(),
            seed: self.seed,
        }
    }
}

/// The actor behind [`Supervisor`].
struct Root {
    me: WeakActorRef<Root>,
    children: HashMap<ActorId, Child>,
    /// Rests before a respawn; aborted with the supervisor.
    rests: JoinSet<()>,
    rng: fastrand::Rng,
}

struct Child {
    recipe: Recipe,
    born: Instant,
    /// The rest before the next respawn, should it fail again soon.
    rest: Duration,
}

struct Adopt {
    recipe: Recipe,
    rest: Duration,
}

impl Actor for Root {
    type Args = u64;
    type Error = Infallible;

    async fn on_start(seed: u64, me: ActorRef<Self>) -> Result<Self, Infallible> {
        let rng = fastrand::Rng::with_seed(seed);
        Ok(Root { me: me.downgrade(), children: HashMap::new(), rests: JoinSet::new(), rng })
    }

    /// A child ended for good: by itself, or beyond its restart limit. Neither may end the supervisor.
    async fn on_link_died(
        &mut self,
        _me: WeakActorRef<Self>,
        id: ActorId,
        reason: ActorStopReason,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        let Some(child) = self.children.remove(&id) else { return Ok(ControlFlow::Continue(())) };
        let Some(shared) = child.recipe.shared.upgrade() else { return Ok(ControlFlow::Continue(())) };
        if reason.is_normal() || shared.is_closed() {
            return Ok(ControlFlow::Continue(()));
        }
        let lived = child.born.elapsed();
        let rest = if lived > WITHIN + child.rest { FIRST_REST } else { child.rest };
        let jittered = rest.mul_f64(1.0 + 0.3 * self.rng.f64());
        shared.fail(Instant::now() + jittered);
        // Nobody else would end them before the rest is over, whatever their time limits. No more can come.
        while shared.refuse_submits(SLICE) {
            tokio::task::yield_now().await;
        }
        tracing::error!(upstream = %shared.name, rest_ms = jittered.as_millis() as u64,
            "the upstream's actor failed beyond its restart limit and is started anew after a rest");
        shared.log(forebay_wire::Level::Error, "actor.failed", || {
            let (name, rest) = (&shared.name, jittered.as_secs_f64());
            format!("the actor of {name} keeps failing; its calls are refused, and it is started anew in {rest:.1} s")
        });
        if let Some(me) = self.me.upgrade() {
            let adopt = Adopt { recipe: child.recipe, rest: (rest * 2).min(LONGEST_REST) };
            while self.rests.try_join_next().is_some() {}
            self.rests.spawn(async move {
                tokio::time::sleep(jittered).await;
                let _ = me.tell(adopt).try_send();
            });
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Message<Adopt> for Root {
    type Reply = ();

    async fn handle(&mut self, Adopt { recipe, rest }: Adopt, context: &mut Context<Self, ()>) {
        if recipe.shared.upgrade().is_none_or(|shared| shared.is_closed()) {
            return;
        }
        let again = recipe.clone();
        let child = UpstreamActor::supervise_with(context.actor_ref(), move || again.args())
            .restart_policy(RestartPolicy::Transient)
            .restart_limit(RESTARTS, WITHIN)
            .spawn_with_mailbox(mailbox::bounded(super::actor::MAILBOX))
            .await;
        self.children.insert(child.id(), Child { recipe, born: Instant::now(), rest });
    }
}
