// Talking with the server. Whatever goes wrong is a Trouble with a kind, so that the page can say what to do about it.

const NEEDS_KEY = 'The server asks for a valid API key.';

class Trouble extends Error {
    constructor(kind, message, seconds) {
        super(message);
        this.kind = kind;        // gone, busy, key, refused, broken
        this.seconds = seconds;  // busy: until it is worth another try
    }
}

function keyHeader() {
    try {
        return new Headers(store.key() ? {Authorization: 'Bearer ' + store.key()} : {});
    } catch {
        throw new Trouble('key', NEEDS_KEY);  // it has signs that no header can carry
    }
}

async function call(path, options) {
    const headers = keyHeader();
    let response;
    try {
        response = await fetch(path, {...options, headers, cache: 'no-store'});
    } catch {
        throw new Trouble('gone', 'The server cannot be reached.');
    }
    if (response.ok) return response;
    const said = await response.json().then((b) => String(b.error.message), () => 'status ' + response.status);
    const wait = Number(response.headers.get('Retry-After')) || 2;
    if (response.status === 401) throw new Trouble('key', NEEDS_KEY);
    const busy = {429: 'is busy', 503: 'cannot answer now'}[response.status];
    if (busy) throw new Trouble('busy', `The server ${busy}: ${said}.`, Math.min(wait, 30));
    throw new Trouble('refused', 'The server refused: ' + said + '.');
}

async function* serverEvents(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
        let piece;
        try {
            piece = await reader.read();
        } catch {
            throw new Trouble('broken', 'The connection broke before the answer was complete.');
        }
        if (piece.done) throw new Trouble('broken', 'The connection ended before the answer was complete.');
        const lines = (rest + piece.value).split('\n');
        rest = lines.pop();
        for (const line of lines) {
            if (!line.startsWith('data:')) continue;
            const data = line.slice(5).trim();  // lines may end in CRLF
            if (data === '[DONE]') return;
            yield JSON.parse(data);
        }
    }
}

// Sends a conversation and hands over what comes: on.text, on.thinking, on.call, on.draft, on.timings, on.finish.
async function ask(body, signal, on) {
    const response = await call('/v1/chat/completions', {method: 'POST', body: JSON.stringify(body), signal});
    for await (const event of serverEvents(response)) {
        if (event.error) throw new Trouble('refused', 'The answer ended early: ' + event.error.message + '.');
        const choice = event.choices?.[0];
        const delta = choice?.delta ?? {};
        if (event.diffusion) on.draft(event.diffusion);
        if (delta.reasoning_content) on.thinking(delta.reasoning_content);
        if (delta.content) on.text(delta.content);
        for (const c of delta.tool_calls ?? [])
            on.call({id: c.id, name: c.function.name, args: c.function.arguments});
        if (event.timings) on.timings(event.timings);
        if (choice?.finish_reason) on.finish(choice.finish_reason);
    }
}
