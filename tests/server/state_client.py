"""The official client with a server that keeps things: files, batches and responses."""
import io
import json
import tempfile
import time

import openai

from serving import MODEL, PATIENCE, Server, check, finish, run


def client(s, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key=key, max_retries=0)


def raises(name, kind, work):
    try:
        work()
        check(name, False, "nothing was raised")
    except kind as e:
        check(name, True)
        return e


def batch_file(names):
    lines = [{"custom_id": n, "method": "POST", "url": "/v1/chat/completions",
              "body": {"model": "test", "max_tokens": 24, "messages": [{"role": "user", "content": f"Say {n}"}]}} for n in names]
    return "\n".join(map(json.dumps, lines)).encode()


def files():
    with tempfile.TemporaryDirectory() as folder, Server("-q", "--state", folder) as s:
        c = client(s)
        made = [c.files.create(file=(f"{i}.jsonl", io.BytesIO(b"x" * (i + 1))), purpose="batch") for i in range(5)]
        check("files are made", [f.bytes for f in made] == [1, 2, 3, 4, 5] and made[0].filename == "0.jsonl" and made[0].purpose == "batch")
        check("and listed, page by page", [f.id for f in c.files.list(limit=2)] == [f.id for f in made[::-1]])
        check("one of them", c.files.retrieve(made[2].id) == made[2] and c.files.content(made[2].id).read() == b"xxx")
        check("deleted", c.files.delete(made[2].id).deleted)
        raises("and gone", openai.NotFoundError, lambda: c.files.retrieve(made[2].id))
        raises("another purpose", openai.BadRequestError, lambda: c.files.create(file=b"x", purpose="assistants"))
        soon = c.files.create(file=b"x", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
        check("for an hour", soon.expires_at == soon.created_at + 3600, soon)


def batches():
    with tempfile.TemporaryDirectory() as folder, Server("-q", "--state", folder) as s:
        c, names = client(s), [f"n{i}" for i in range(6)]
        file = c.files.create(file=("in.jsonl", batch_file(names)), purpose="batch")
        batch = c.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"})
        check("a batch is made", batch.status == "validating" and batch.metadata == {"a": "b"}, batch)
        until = time.time() + PATIENCE
        while batch.status not in ("completed", "failed") and time.time() < until:
            time.sleep(0.1)
            batch = c.batches.retrieve(batch.id)
        check("and completed", batch.status == "completed" and batch.request_counts.completed == 6 and batch.request_counts.total == 6, batch)
        lines = [json.loads(x) for x in c.files.content(batch.output_file_id).text.splitlines()]
        check("with answers", {x["custom_id"] for x in lines} == set(names) and all(x["response"]["status_code"] == 200 for x in lines))
        bad = c.batches.create(input_file_id=c.files.create(file=b"{}", purpose="batch").id, endpoint="/v1/chat/completions", completion_window="24h")
        while c.batches.retrieve(bad.id).status == "validating" and time.time() < until:
            time.sleep(0.1)
        bad = c.batches.retrieve(bad.id)
        check("a bad one fails", bad.status == "failed" and bad.errors.data[0].line == 1, bad)
        check("both are listed", [b.id for b in c.batches.list(limit=1)] == [bad.id, batch.id])
        raises("none to cancel", openai.ConflictError, lambda: c.batches.cancel(batch.id))
        raises("none there", openai.NotFoundError, lambda: c.batches.retrieve("batch_1"))


def responses():
    with tempfile.TemporaryDirectory() as folder, Server("-q", "--state", folder) as s:
        c = client(s)
        first = c.responses.create(model="test", input="What is the capital of France?", max_output_tokens=64)
        second = c.responses.create(model="test", input="And of Italy?", previous_response_id=first.id, max_output_tokens=64)
        check("one goes on from another", second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens, second)
        check("it can be had again", c.responses.retrieve(second.id).output_text == second.output_text and c.responses.retrieve(first.id).id == first.id)
        items = list(c.responses.input_items.list(first.id))
        check("its input", [i.content[0].text for i in items] == ["What is the capital of France?"], items)
        with c.responses.stream(model="test", input="And of Spain?", previous_response_id=second.id, max_output_tokens=64) as stream:
            for _ in stream:
                pass
            third = stream.get_final_response()
        check("a stream is kept", c.responses.retrieve(third.id).output_text == third.output_text and third.previous_response_id == second.id)
        c.responses.delete(third.id)
        raises("deleted", openai.NotFoundError, lambda: c.responses.retrieve(third.id))
        raises("nothing to go on from", openai.BadRequestError,
               lambda: c.responses.create(model="test", input="x", previous_response_id=third.id))
        loose = c.responses.create(model="test", input="Hello", store=False, max_output_tokens=64)
        raises("not kept", openai.NotFoundError, lambda: c.responses.retrieve(loose.id))


def without_state():
    with Server("-q") as s:
        e = raises("no state", openai.InternalServerError, lambda: client(s).files.list())
        check("the message names it", e and "--state" in str(e), e)


Server.model = MODEL
run([files, batches, responses, without_state])
finish()
