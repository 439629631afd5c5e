// Code with its comments, strings, numbers and keywords set off. One rule for many languages: it looks at the signs, not at the grammar.

const MAX_HIGHLIGHT = 40000;  // characters; longer code stays plain
const HASH = String.raw`#[^\n]*`, SLASH = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`, DASH = String.raw`--[^\n]*`, MARKUP = '<' + String.raw`!--[^]*?(?:--\>|$)`;
const FAMILIES = [
    [HASH, 'python py sh bash shell zsh ruby rb perl yaml yml toml make makefile dockerfile r julia elixir nim'],
    [SLASH, 'c h cpp c++ cc cuda java kotlin javascript js typescript ts jsx tsx json jsonc go rust rs swift scala dart zig css scss php csharp cs'],
    [DASH, 'sql lua haskell hs ada'],
    [MARKUP, 'html xml svg'],
];
const KEYWORDS = new Set(`abstract and as async await auto begin bool boolean break case catch char class const constexpr continue def default defer del do double
    elif else elsif end enum except export extends extern false final finally float fn for foreach from func function global go goto if impl implements import
    in inline instanceof int interface is lambda let long loop match mod module mut namespace new nil none not null of operator or override package pass
    private protected pub public raise ref return self short signed sizeof static struct super switch template then this throw trait true try type typedef
    typeof undefined union unsigned until use using val var virtual void volatile when where while with yield
    select insert update delete create table values into join group order by having limit set local`.split(/\s+/));

function highlight(text, language) {
    const family = text.length <= MAX_HIGHLIGHT && FAMILIES.find(([, names]) => names.split(' ').includes(language));
    if (!family) return [text];
    const token = new RegExp(`(${family[0]})|("(?:\\\\.|[^"\\\\\\n])*"|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\.|[^\`\\\\])*\`)|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, 'g');
    const out = [];
    let plain = 0;
    for (const found of text.matchAll(token)) {
        const [whole, comment, string, number] = found;
        const look = comment ? 'comment' : string ? 'string' : number ? 'number' : KEYWORDS.has(whole.toLowerCase()) ? 'keyword' : null;
        if (!look) continue;
        out.push(text.slice(plain, found.index), h('span', {class: 'code-' + look}, whole));
        plain = found.index + whole.length;
    }
    out.push(text.slice(plain));
    return out;
}
