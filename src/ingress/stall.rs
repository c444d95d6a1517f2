//! A socket that ends when its client stops reading, or reads too slowly (rule R16): an answer that is not taken
//! holds memory.
//!
//! While a write is stuck nothing is read from the client either, so that one who sends request upon request
//! and reads no answer cannot make answers pile up.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// From its first stuck write to its end an answer must be taken at least this fast, so that a few bytes now and
/// then do not keep it.
const SLOWEST_BYTES_A_SECOND: u64 = 4 << 10;

/// See the module's documentation.
pub(super) struct Stall<S> {
    socket: S,
    /// How long a write may make no progress.
    patience: Duration,
    stuck: bool,
    /// Since when what is being written has not gone out in one go, and how much of it was taken since.
    behind: Option<(Instant, u64)>,
    /// Made at the first stuck write, and used again.
    timer: Option<Pin<Box<Sleep>>>,
    /// Told when the write goes on.
    reader: Option<Waker>,
}

impl<S> Stall<S> {
    pub(super) fn new(socket: S, patience: Duration) -> Self {
        Stall { socket, patience, stuck: false, behind: None, timer: None, reader: None }
    }

    fn wrote(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                self.stuck = false;
                if let (Some((_, taken)), Ok(more)) = (&mut self.behind, &written) {
                    *taken += *more as u64;
                }
                if let Some(waker) = self.reader.take() {
                    waker.wake();
                }
                Poll::Ready(written)
            }
            Poll::Pending => {
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now())));
                if !self.stuck {
                    self.stuck = true;
                    let now = Instant::now();
                    let (since, taken) = *self.behind.get_or_insert((now, 0));
                    let earned = Duration::from_millis(taken * 1000 / SLOWEST_BYTES_A_SECOND);
                    timer.as_mut().reset((now + self.patience).min(since + self.patience + earned));
                }
                match timer.as_mut().poll(context) {
                    Poll::Ready(()) => {
                        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
                    }
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.stuck {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.socket).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Asked for when all has been written: the client has caught up.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.behind = None;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn r16_a_write_without_progress_ends_the_socket() {
        let (_client, server) = tokio::io::duplex(10);
        let mut socket = Stall::new(server, PATIENCE);
        let began = Instant::now();
        let fault = socket.write_all(&[b'x'; 100]).await.unwrap_err();
        assert_eq!((fault.kind(), began.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
    }

    /// Writes `bytes` to a client that takes `step` of them at a time, each a second before patience ends.
    async fn written(bytes: usize, step: usize) -> (io::Result<()>, Duration) {
        let (mut client, server) = tokio::io::duplex(step);
        let mut socket = Stall::new(server, PATIENCE);
        let reader = tokio::spawn(async move {
            let (mut read, mut buffer) = (0, vec![0; step]);
            while read < bytes {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
                match client.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(more) => read += more,
                }
            }
        });
        let began = Instant::now();
        let ended = socket.write_all(&vec![b'x'; bytes]).await;
        drop(socket);
        reader.await.unwrap();
        (ended, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn r16_a_slow_reader_is_waited_for_and_one_that_takes_crumbs_is_not() {
        // 29 seconds earn 116 KiB at the slowest rate.
        assert!(written(2 << 20, 128 << 10).await.0.is_ok());
        let (ended, after) = written(2 << 20, 10).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(after < PATIENCE * 3, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_answer_read_slowly_is_not_held_against_the_next() {
        let (mut client, server) = tokio::io::duplex(128 << 10);
        let mut socket = Stall::new(server, PATIENCE);
        let reader = tokio::spawn(async move {
            // Half of the slowest rate, were it one answer.
            let mut buffer = vec![0; 64 << 10];
            while client.read(&mut buffer).await.unwrap() > 0 {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
            }
        });
        for _ in 0..10 {
            socket.write_all(&vec![b'x'; 64 << 10]).await.unwrap();
            socket.flush().await.unwrap();
        }
        drop(socket);
        reader.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_while_a_write_is_stuck_and_reading_goes_on_after() {
        let (mut client, server) = tokio::io::duplex(10);
        client.write_all(b"request").await.unwrap();
        let (mut reads, mut writes) = tokio::io::split(Stall::new(server, PATIENCE));
        let writer = tokio::spawn(async move { writes.write_all(&[b'x'; 11]).await });
        tokio::task::yield_now().await;
        let mut request = [0; 7];
        assert!(tokio::time::timeout(Duration::from_secs(5), reads.read_exact(&mut request)).await.is_err());
        let reading = tokio::spawn(async move { reads.read_exact(&mut request).await.map(|_| request) });
        tokio::task::yield_now().await;
        client.read_exact(&mut [0; 11]).await.unwrap();
        assert_eq!(&reading.await.unwrap().unwrap(), b"request");
        writer.await.unwrap().unwrap();
    }
}
