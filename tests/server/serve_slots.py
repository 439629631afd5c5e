"""Conversations that are saved to files and restored, as llama-server's clients ask for it."""
import json
import os
import shutil
import tempfile

from serving import Server, check, finish, run

CHAT = "/v1/chat/completions"
FOLDER = tempfile.mkdtemp()
STORY = "Once upon a time there was a fox. " * 40


def ask(s, text, headers=None):
    status, reply = s.chat(text, headers=headers)
    assert status == 200, reply
    return reply["choices"][0]["message"]["content"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def act(s, action, name="fox.kv", slot=0, headers=None, **fields):
    return s.json("POST", f"/slots/{slot}?action={action}", {"filename": name, **fields}, headers)


def key(word):
    return {"Authorization": "Bearer " + word}


def there_and_back():
    with Server("-q", "--slot-save-path", FOLDER) as s:
        cold, cached = ask(s, STORY)
        check("nothing is known of it", cached == 0)
        status, saved = act(s, "save")
        check("saved", status == 200 and saved["id_slot"] == 0 and saved["filename"] == "fox.kv" and saved["n_saved"] > 200
              and saved["n_written"] == os.path.getsize(f"{FOLDER}/fox.kv") and os.stat(f"{FOLDER}/fox.kv").st_mode & 0o777 == 0o600 and saved["timings"]["save_ms"] > 0, saved)
        ask(s, "Hello")
        status, other = act(s, "save", "hello.kv")
        check("the last one is slot 0", status == 200 and other["n_saved"] < saved["n_saved"], other)
        status, again = act(s, "save", slot=1)
        check("the one before is slot 1", status == 200 and again["n_saved"] == saved["n_saved"], again)
        status, reply = act(s, "save", slot=40)
        check("there are not so many", status == 400 and "no conversation" in reply["error"]["message"], reply)
    with Server("-q", "--slot-save-path", FOLDER) as s:
        status, back = act(s, "restore")
        check("restored", status == 200 and back["n_restored"] == saved["n_saved"] and back["n_read"] == saved["n_written"]
              and back["timings"]["restore_ms"] > 0, back)
        warm, cached = ask(s, STORY)
        check("the same answer, and nothing to encode", warm == cold and cached > 200, (warm, cold, cached))
        check("still listed", len(s.json("GET", "/slots")[1]) > 0)


def refused():
    with Server("-q", "--slot-save-path", FOLDER) as s:
        ask(s, STORY)
        for name in ("", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "x.partial", "x" * 201, "a\x00b", "a b", "ä"):
            status, reply = act(s, "save", name)
            check(f"no file is called {name[:20]!r}", status == 400 and reply["error"]["param"] == "filename", reply)
        os.mkfifo(os.path.join(FOLDER, "pipe"))
        status, reply = act(s, "restore", "pipe")
        check("a pipe is not waited for", status >= 400 and "not a regular file" in reply["error"]["message"], reply)
        os.remove(os.path.join(FOLDER, "pipe"))
        for path in ("/slots/x?action=save", "/slots/?action=save", "/slots/-1?action=save", "/slots/99999?action=save",
                     "/slots/0/1?action=save", "/slots/+1?action=save"):
            check("no such slot: " + path, s.json("POST", path, {"filename": "x.kv"})[0] == 404)
        for query in ("", "?action=", "?action=erase", "?action=" + "s" * 100, "?action=%zz"):
            check("no such action: " + query[:20], s.json("POST", "/slots/0" + query, {"filename": "x.kv"})[0] == 400)
        check("no name", s.json("POST", "/slots/0?action=save", {})[0] == 400)
        check("no word", s.json("POST", "/slots/0?action=save", {"filename": 7})[0] == 400)
        status, reply = act(s, "restore", "nothing.kv")
        check("no such file", status == 404 and FOLDER not in json.dumps(reply), reply)
        with open(f"{FOLDER}/broken.kv", "wb") as f:
            f.write(open(f"{FOLDER}/fox.kv", "rb").read()[:-100])
        status, reply = act(s, "restore", "broken.kv")
        check("a broken one", status == 400 and "broken.kv" in reply["error"]["message"] and FOLDER not in json.dumps(reply), reply)
        os.mkdir(f"{FOLDER}/folder.kv")
        for action in ("save", "restore"):
            status, reply = act(s, action, "folder.kv")
            check(f"a folder: {action}", status in (400, 500) and FOLDER not in json.dumps(reply), reply)
        check("only GET lists", s.json("POST", "/slots", {})[0] == 405)
        check("only what was asked for is there", sorted(os.listdir(FOLDER)) == ["broken.kv", "folder.kv", "fox.kv", "hello.kv"],
              os.listdir(FOLDER))
    with Server("-q") as s:
        status, reply = act(s, "save")
        check("without a folder", status == 501 and "--slot-save-path" in reply["error"]["message"], reply)


def keys():
    with Server("-q", "--slot-save-path", FOLDER, "--api-key", "one", "--api-key", "two") as s:
        ask(s, STORY, key("one"))
        check("another's conversation is not saved", act(s, "save", "k.kv", headers=key("two"))[0] == 400)
        check("one's own is", act(s, "save", "k.kv", headers=key("one"))[0] == 200)
        for file in os.listdir(FOLDER):
            if file.endswith("k.kv") and file != "k.kv":
                shutil.copy(f"{FOLDER}/{file}", f"{FOLDER}/{file[:-4]}torn.kv")
                os.truncate(f"{FOLDER}/{file[:-4]}torn.kv", 5000)
        status, reply = act(s, "restore", "torn.kv", headers=key("one"))
        check("a broken one goes by its own name", status == 400 and reply["error"]["message"].startswith("torn.kv"), reply)
        check("another's file is not there", act(s, "restore", "k.kv", headers=key("two"))[0] == 404)
        check("without a key nothing is", act(s, "restore", "k.kv")[0] == 401)
    with Server("-q", "--slot-save-path", FOLDER, "--api-key", "one", "--api-key", "two") as s:
        check("one's own file is", act(s, "restore", "k.kv", headers=key("one"))[0] == 200)
        check("and helps nobody else", ask(s, STORY, key("two"))[1] == 0)
        check("but oneself", ask(s, STORY, key("one"))[1] > 200)


try:
    run([there_and_back, refused, keys])
finally:
    shutil.rmtree(FOLDER)
finish()
