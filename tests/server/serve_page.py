"""The page as HTTP sees it: one document, a strict policy that fits it, asked for again only when it has changed."""
import base64
import glob
import hashlib
import re

from serving import Server, check, finish, run


def inner(page, tag):
    return re.search(rf"<{tag}[^>]*>(.*?)</{tag}>".encode(), page, re.S).group(1)


def sha256(data):
    return "'sha256-" + base64.b64encode(hashlib.sha256(data).digest()).decode() + "'"


def directives(policy):
    return {d.split()[0]: d.split()[1:] for d in policy.split(";")}


def document():
    with Server("-q") as s:
        status, headers, page = s.request("GET", "/")
        check("the page is there", status == 200 and headers["content-type"] == "text/html; charset=utf-8", (status, headers))
        check("its length is told", int(headers["content-length"]) == len(page))
        policy = directives(headers["content-security-policy"])
        check("nothing is allowed that is not named", policy["default-src"] == ["'none'"], policy)
        check("its own script and no other", policy["script-src"] == [sha256(inner(page, "script"))], policy)
        check("its own style and no other", policy["style-src"] == [sha256(inner(page, "style"))], policy)
        check("it talks with its own server", policy["connect-src"] == ["'self'"])
        check("pictures from itself", policy["img-src"] == ["data:", "blob:"])
        check("no markup from text", policy["require-trusted-types-for"] == ["'script'"] and policy["trusted-types"] == ["'none'"])
        check("in no frame", policy["frame-ancestors"] == ["'none'"])
        check("nothing from elsewhere", not re.search(rb"""(src|href)=["'](?!data:|#)""", page), page[:200])
        check("no markup is made of text", not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page))
        check("HEAD says the same", s.request("HEAD", "/")[1]["etag"] == headers["etag"])
        check("only GET", s.request("POST", "/", "{}")[0] == 405)
        check("nothing below it", s.request("GET", "/nothing")[0] == 404)


def again():
    with Server("-q") as s:
        tag = s.request("GET", "/")[1]["etag"]
        for known in (tag, "W/" + tag, f'"other", {tag}', "*"):
            status, headers, body = s.request("GET", "/", headers={"If-None-Match": known})
            check("not sent twice", status == 304 and not body and headers["etag"] == tag, (known, status))
        check("another one is sent", s.request("GET", "/", headers={"If-None-Match": '"other"'})[0] == 200)


def keys():
    with Server("-q", "--api-key", "secret") as s:
        check("the page itself needs no key", s.request("GET", "/")[0] == 200)
        check("what it asks for does", s.request("GET", "/props")[0] == 401)


def small():
    size = sum(len(open(f, "rb").read()) for f in glob.glob("ui/*.js"))
    check("the scripts stay small", 0 < size < 90_000, size)
    with Server("-q") as s:
        check("so does what is sent", len(inner(s.request("GET", "/")[2], "script")) < 90_000)


run([document, again, keys, small])
finish()
