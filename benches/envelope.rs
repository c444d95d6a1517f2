//! What reading a caller's message and splicing it for an upstream costs, and the way back.

use bytes::Bytes;
use forebay::protocol::envelope::{Message, Request, read};
use forebay::protocol::splice::{CallNote, Outbound, ReplyForm, answer, request};
use forebay::protocol::version::Era;

#[global_allocator]
static ALLOCATIONS: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

const SIZES: [usize; 3] = [64, 1024, 65536];

fn message(size: usize) -> Bytes {
    let text = "x".repeat(size);
    format!(
        r#"{{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{{"name":"up__echo","arguments":{{"text":"{text}"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
    .into()
}

fn parsed(body: Bytes) -> Request {
    match read(body) {
        Ok(Message::Request(request)) => request,
        other => unreachable!("{other:?}"),
    }
}

#[divan::bench(args = SIZES)]
fn read_and_splice(bencher: divan::Bencher, size: usize) {
    let body = message(size);
    let mut out = Vec::with_capacity(size + 512);
    bencher.bench_local(|| {
        let parsed = parsed(body.clone());
        out.clear();
        let to = Outbound { id: 77, name: Some("echo"), token: 5, left_ms: Some(900), era: Era::Modern, level: None };
        request(&mut out, &parsed, &to);
        out.len()
    });
}

#[divan::bench(args = SIZES)]
fn splice_the_answer(bencher: divan::Bencher, size: usize) {
    let text = "x".repeat(size);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":77,"result":{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#
    );
    let form = ReplyForm::JsonRpc { id: Bytes::from_static(b"12345"), era: Era::Modern };
    let note = CallNote { call_id: b"k3f9q-1f9", upstream: "up", queued_ms: 3, running_ms: 4, cacheable: false };
    bencher.bench_local(|| answer(line.as_bytes(), Era::Modern, &form, &note));
}
