//! A socket that ends when its client stops reading (rule R16): an answer that is not taken holds memory.
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

/// See the module's documentation.
pub(super) struct Stall<S> {
    socket: S,
    /// How long a write may make no progress.
    patience: Duration,
    stuck: bool,
    /// Made at the first stuck write, and used again.
    timer: Option<Pin<Box<Sleep>>>,
    /// Told when the write goes on.
    reader: Option<Waker>,
}

impl<S> Stall<S> {
    pub(super) fn new(socket: S, patience: Duration) -> Self {
        Stall { socket, patience, stuck: false, timer: None, reader: None }
    }

    fn wrote(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                self.stuck = false;
                if let Some(waker) = self.reader.take() {
                    waker.wake();
                }
                Poll::Ready(written)
            }
            Poll::Pending => {
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now())));
                if !self.stuck {
                    self.stuck = true;
                    timer.as_mut().reset(Instant::now() + self.patience);
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
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

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_goes_on_reading_is_waited_for() {
        let (mut client, server) = tokio::io::duplex(10);
        let mut socket = Stall::new(server, PATIENCE);
        let reader = tokio::spawn(async move {
            let mut read = 0;
            while read < 100 {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
                read += client.read(&mut [0; 10]).await.unwrap();
            }
        });
        socket.write_all(&[b'x'; 100]).await.unwrap();
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
