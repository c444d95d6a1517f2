//! Reloads of the config: asked for by a command, a signal or a change of a file; whole or not at all.
//!
//! One task does them one after another. Whoever asks while one is under way shares the next one with all others who
//! ask, so that ten a second cost no more than the task can do. What a config is put in force on is `house`'s.

mod tell;
mod watch;

use crate::config::{Auth, Config, Faults, Loaded, Loader, Warning};
use crate::house::House;
use forebay_wire as wire;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use watch::Watch;

/// Orders that wait. A sender with an answer to wait for waits for a place too; one without is served by those that
/// wait already.
const ORDERS: usize = 16;

/// Asks for reloads.
#[derive(Clone)]
pub struct Reload {
    orders: mpsc::Sender<Order>,
}

struct Order {
    by: Arc<str>,
    answer: Option<oneshot::Sender<Arc<wire::Reloaded>>>,
}

/// The daemon is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the daemon is stopping")]
pub struct Stopping;

impl Reload {
    /// Reads the config anew and puts it in force, or says why not.
    ///
    /// # Errors
    /// If the daemon is stopping.
    pub async fn ask(&self, by: &str) -> Result<Arc<wire::Reloaded>, Stopping> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order { by: by.into(), answer: Some(answer) }).await.map_err(|_| Stopping)?;
        answered.await.map_err(|_| Stopping)
    }

    /// The same without waiting for it.
    pub fn nudge(&self, by: &str) {
        let _ = self.orders.try_send(Order { by: by.into(), answer: None });
    }
}

/// What the task works on.
struct Reloader {
    house: Arc<House>,
    loader: Loader,
    watch: Watch,
    orders: mpsc::Receiver<Order>,
    /// What the file said when it was last put in force.
    standing: wire::ConfigState,
}

/// Starts the task on `runtime`, for a house that has just been furnished with what `loader` has read; `files` are
/// those that it has read.
pub(crate) fn start(house: Arc<House>, mut loader: Loader, files: Vec<PathBuf>, runtime: &Handle) -> Reload {
    let config = house.dispatcher.config.load_full();
    if let Some(file) = &config.origin {
        loader.pin(file);
    }
    let watch = Watch::new(files);
    let standing = wire::ConfigState {
        file: config.origin.as_ref().map(|file| file.display().to_string()),
        ok: true,
        since_unix_ms: crate::events::unix_ms(),
        watched: watch.works(),
        ..wire::ConfigState::default()
    };
    house.dispatcher.config_state.store(Some(Arc::new(standing.clone())));
    let (sender, orders) = mpsc::channel(ORDERS);
    runtime.spawn(Reloader { house, loader, watch, orders, standing }.run());
    Reload { orders: sender }
}

impl Reloader {
    async fn run(mut self) {
        loop {
            let mut asked = Vec::new();
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => asked.push(order),
                    None => return,
                },
                () = self.watch.changed() => {}
            }
            while let Ok(order) = self.orders.try_recv() {
                asked.push(order);
            }
            let by: Arc<str> = match asked.first() {
                Some(order) => order.by.clone(),
                None => "a change of the file".into(),
            };
            let told = Arc::new(self.reload(&by, asked.is_empty()).await);
            for answer in asked.into_iter().filter_map(|order| order.answer) {
                let _ = answer.send(told.clone());
            }
        }
    }

    /// Nobody asked if `unasked`, so that a file which was touched and is the same is not worth a word.
    async fn reload(&mut self, by: &str, unasked: bool) -> wire::Reloaded {
        let loader = self.loader.clone();
        // Before the files are read: what changes from now on is another change.
        self.watch.look();
        let read = tokio::task::spawn_blocking(move || loader.load()).await;
        let Ok(Loaded { config, files }) = read else {
            return wire::Reloaded { text: "reading the config failed".into(), ..wire::Reloaded::default() };
        };
        self.watch.follow(files);
        let config = config.and_then(|(config, warnings)| {
            self.fits(&config)?;
            Ok((config, warnings))
        });
        match config {
            Ok((config, warnings)) => self.accept(config, &warnings, by, unasked).await,
            Err(faults) => self.refuse(&faults, by),
        }
    }

    /// What only the running daemon can know.
    fn fits(&self, next: &Config) -> Result<(), Faults> {
        let bound = self.house.bound_at();
        if matches!(next.auth, Auth::None) && !bound.ip().to_canonical().is_loopback() {
            let message = format!("is \"none\", while this daemon listens on {bound}, open to other machines");
            let hint = "restart the daemon to have it listen elsewhere, or keep asking for credentials";
            return Err(Faults::one(next.origin.clone(), "auth.mode", &message, hint));
        }
        Ok(())
    }

    async fn accept(&mut self, config: Config, warnings: &[Warning], by: &str, unasked: bool) -> wire::Reloaded {
        let mut changes = self.house.put_in_force(config);
        self.house.settle(&mut changes).await;
        let told = tell::accepted(&changes, warnings);
        let news = !unasked || !tell::is_nothing(&changes) || !self.standing.ok;
        self.standing.ok = true;
        self.standing.faults = Vec::new();
        self.standing.refused_unix_ms = None;
        self.standing.since_unix_ms = crate::events::unix_ms();
        self.standing.needs_restart.clone_from(&told.needs_restart);
        if news {
            tracing::info!(by, result = told.text, "the config was reloaded");
            self.event(wire::Level::Info, &told.text, by);
        }
        self.publish();
        told
    }

    fn refuse(&mut self, faults: &Faults, by: &str) -> wire::Reloaded {
        let told = tell::refused(faults);
        for fault in faults {
            tracing::warn!(by, %fault, hint = fault.hint, "the config is refused; what was in force goes on");
        }
        self.event(wire::Level::Error, &told.text, by);
        self.standing.ok = false;
        self.standing.faults.clone_from(&told.faults);
        self.standing.refused_unix_ms = Some(crate::events::unix_ms());
        self.publish();
        told
    }

    fn event(&self, level: wire::Level, text: &str, by: &str) {
        let draft = crate::events::Draft::new(level, "config.reload", text).by(by);
        self.house.dispatcher.events().tell(draft);
    }

    fn publish(&mut self) {
        self.standing.watched = self.watch.works();
        self.house.dispatcher.config_state.store(Some(Arc::new(self.standing.clone())));
    }
}
