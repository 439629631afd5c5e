"""Sums as people ask them, up to four digits, worked out in the answer where one look is not enough.

Each function gives (question, answer, thought); `value` says what a result is taken up with in the next turn."""
from phrases import keep, say
from words import DAYS, number_words

OPS = {"+": ["{a} + {b}", "{a}+{b}", "{a} plus {b}", "{a} and {b} added", "(add|add up|sum) {a} (and|to|with) {b}", "[the] sum of {a} and {b}", "{a} (and|more than|added to) {b}",
             "{a} (increased by|together with|with) {b} [together]", "total of {a} and {b}"],
       "-": ["{a} - {b}", "{a}-{b}", "{a} minus {b}", "{a} take away {b}", "subtract {b} from {a}", "{a} less {b}", "(take|remove) {b} (from|off) {a}", "[the] difference (between|of) {a} and {b}",
             "{a} (reduced|decreased) by {b}"],
       "*": ["{a} * {b}", "{a}*{b}", "{a} x {b}", "{a}x{b}", "{a} times {b}", "multiply {a} (by|with|and) {b}", "[the] product of {a} and {b}", "{a} multiplied (by|with) {b}", "{a} times {b}"],
       "/": ["{a} / {b}", "{a}/{b}", "{a} divided by {b}", "divide {a} by {b}", "{a} : {b}", "{a} over {b}", "[the] quotient of {a} and {b}", "how (often|many times) does {b} (go into|fit into|fit in) {a}",
             "(share|split) {a} (by|among|between|into) {b}"]}
ASKS = ["{s}", "{s}", "{s}", "{s} =", "{s} = ?", "{s}=", "(what is|what's|whats|how much is|what does) {s} [make|equal|give]", "(calculate|compute|calc|solve|work out|do|find|evaluate) {s}", "can (you|u) (do|calculate|solve|work out) {s}",
        "(tell|give) me {s}", "(i need|what about|how about) {s}", "{s} (makes|is|equals) [what]", "(what|how much) do you get (for|from) {s}", "result of {s}", "my homework: {s}", "{s} [is] how much", "is it hard to do {s}"]


def number(rng, n):
    return number_words(n) if n <= 20 and rng.random() < 0.12 or n <= 100 and rng.random() < 0.04 else str(n)


def operands(rng):
    op = rng.choice("++--**/")
    if op == "-" and rng.random() < 0.15:  # from a round number, with a carry at every digit
        a = rng.choice([10, 20, 30, 40, 50, 60, 80, 90, 100, 100, 100, 200, 300, 500, 1000, 1000, 2000])
        return a, op, rng.randrange(1, a)
    size = lambda: rng.randrange(10 ** rng.choice([1, 1, 2, 2, 2, 3, 3, 4]))
    if op == "/":
        b = rng.randrange(2, rng.choice([10, 10, 13, 21]))
        q = rng.randrange(1, 10 ** rng.choice([1, 2, 2, 3]) if b < 10 else 13)
        return b * q + (rng.randrange(b) if rng.random() < 0.15 else 0), op, b
    if op == "*":
        kind = rng.random()
        if kind < 0.4:
            return rng.randrange(2, 13), op, rng.randrange(2, 13)
        if kind < 0.75:
            a, b = size(), rng.randrange(2, 10)
        else:
            a, b = rng.randrange(10, 10 ** rng.choice([2, 2, 3])), rng.randrange(11, 100)
        return (a, op, b) if rng.random() < 0.7 else (b, op, a)
    a, b = size(), size()
    if op == "-" and a < b and rng.random() < 0.85:
        a, b = b, a
    return a, op, b


def long_division(a, b):
    """The steps of a division by one digit, and quotient and rest."""
    steps, rest = [], 0
    for digit in str(a):
        now = rest * 10 + int(digit)
        q, rest = divmod(now, b)
        if q or steps:
            steps.append("%d / %d = %d%s" % (now, b, q, " rest %d" % rest if rest else ""))
        else:
            rest = now
    return steps


def worked(a, op, b):
    """The answer: at once where that can be seen, else with what lies between."""
    if op == "+":
        return "%d + %d = %d." % (a, b, a + b)
    if op == "-":
        return "%d - %d = %d." % (a, b, a - b)
    if op == "*":
        if min(a, b) < 10 or max(a, b) <= 12:
            return "%d * %d = %d." % (a, b, a * b)
        tens, ones = b // 10 * 10, b % 10
        if not ones or a < 10:
            return "%d * %d = %d." % (a, b, a * b)
        if b > 99:
            a, b = b, a
            tens, ones = b // 10 * 10, b % 10
        return "%d * %d = %d, %d * %d = %d, %d + %d = %d, so %d * %d = %d." % (a, tens, a * tens, a, ones, a * ones, a * tens, a * ones, a * b, a, b, a * b)
    q, rest = divmod(a, b)
    end = "%d / %d = %d%s." % (a, b, q, ", rest %d" % rest if rest else "")
    if a < 10 * b or b > 9:
        return end
    return ", ".join(long_division(a, b)) + ", so " + end


def result(a, op, b):
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a // b


def expression(rng, a, op, b):
    return say(rng, rng.choice(OPS[op]), a=keep(number(rng, a)), b=keep(number(rng, b)))


def plain(rng):
    a, op, b = operands(rng)
    s = expression(rng, a, op, b)
    return say(rng, rng.choice(ASKS), s=s), worked(a, op, b), "I work out %d %s %d." % (a, op, b), result(a, op, b) if op != "/" or a % b == 0 else None


def three(rng):
    a, b, c = (rng.randrange(1, rng.choice([10, 10, 30, 100])) for _ in range(3))
    op = rng.choice(["+", "+", "*", "-"])
    if op == "*":
        a, b, c = (rng.randrange(1, 10) for _ in range(3))
        text = "%d * %d = %d, %d * %d = %d." % (a, b, a * b, a * b, c, a * b * c)
        value = a * b * c
    elif op == "+":
        text, value = "%d + %d = %d, %d + %d = %d." % (a, b, a + b, a + b, c, a + b + c), a + b + c
    else:
        text, value = "%d + %d = %d, %d - %d = %d." % (a, b, a + b, a + b, c, a + b - c), a + b - c
    first = "+" if op == "-" else op
    gap = rng.choice(["", " "])
    s = keep("%d%s%s%s%d%s%s%s%d" % (a, gap, first, gap, b, gap, op, gap, c))
    return say(rng, rng.choice(ASKS), s=s), text, "I go from left to right.", value


def single(rng):
    """Half, double, square, root, percent."""
    kind = rng.randrange(8)
    n = rng.randrange(1, rng.choice([20, 100, 100, 500]))
    if kind == 0:
        return say(rng, "[what is|whats|how much is] (half|one half|a half|50%|50 percent|fifty percent) of {n}", n=keep(str(2 * n))), "%d / 2 = %d." % (2 * n, n), "Half is divided by 2.", n
    if kind == 1:
        return say(rng, "[what is|whats|calculate] ((twice|double|two times) [of] {n}|the double of {n}|{n} doubled)", n=keep(str(n))), "2 * %d = %d." % (n, 2 * n), "Double is times 2.", 2 * n
    if kind == 2:
        m = n % 25 + 1
        return say(rng, "[what is|whats] ({n} squared|the square of {n}|{n} to the power of (2|two)|{n}^2|{n} to the second)", n=keep(str(m))), "%d * %d = %d." % (m, m, m * m), "A square is a number times itself.", m * m
    if kind == 3:
        m = n % 20 + 1
        return say(rng, "[what is|whats|find] ([the] square root of {n}|[the] root of {n}|sqrt {n}|sqrt of {n})", n=keep(str(m * m))), "%d * %d = %d, so the root of %d is %d." % (m, m, m * m, m * m, m), "I look for a number times itself.", m
    if kind == 4:
        m = 4 * (n % 60 + 1)
        return say(rng, "[what is|whats|how much is] (a quarter|one quarter|one fourth|25%|25 percent) of {n}", n=keep(str(m))), "%d / 4 = %d." % (m, m // 4), "A quarter is divided by 4.", m // 4
    if kind == 5:
        m = 10 * (n % 90 + 1)
        p = rng.choice([10, 10, 20, 1, 5]) if m % 100 == 0 else 10
        return say(rng, "[what is|whats|how much is] {p}(%| percent) of {n}", n=keep(str(m)), p=keep(str(p))), "%d * %d / 100 = %d." % (m, p, m * p // 100), "Percent is of a hundred.", m * p // 100
    if kind == 6:
        m = 3 * (n % 60 + 1)
        return say(rng, "[what is|whats] (a third|one third) of {n}", n=keep(str(m))), "%d / 3 = %d." % (m, m // 3), "A third is divided by 3.", m // 3
    return say(rng, "[what is|whats] ((three times|triple) {n}|{n} tripled)", n=keep(str(n))), "3 * %d = %d." % (n, 3 * n), "Triple is times 3.", 3 * n


THINGS = "apples pears eggs books pens coins cards stones balls cups plates shells stars sweets cookies marbles stamps flowers tickets keys".split()
WHO = ["i", "i", "tom", "anna", "my sister", "he", "she", "a farmer", "leo", "mia", "we", "sam"]


def told(rng):
    """A sum in a little tale."""
    things, who = rng.choice(THINGS), rng.choice(WHO)
    a, b = rng.randrange(2, rng.choice([10, 20, 60])), rng.randrange(2, rng.choice([10, 20, 40]))
    kind, s = rng.randrange(4), dict(w=keep(who), t=keep(things))
    if kind == 0:
        q = say(rng, "{w} (have|has|had|got) {a} {t} and (buy|get|find|buys|gets|finds|got|bought|found) {b} more, how many [{t}] (now|are there now|in all|altogether|do they have)", a=a, b=b, **s)
        return q, "%d + %d = %d." % (a, b, a + b), "More: I add.", a + b
    if kind == 1:
        a, b = max(a, b) + 1, min(a, b)
        q = say(rng, "{w} (have|has|had) {a} {t} and (eat|use|lose|give away|gave away|lost|used|sold|sells) {b}, how many [{t}] (are left|remain|left|are there now|do they still have)", a=a, b=b, **s)
        return q, "%d - %d = %d." % (a, b, a - b), "Less: I subtract.", a - b
    if kind == 2:
        a, b = a % 12 + 2, b % 12 + 2
        q = say(rng, "[there are] {a} (boxes|bags|rows|tables|baskets) with {b} {t} (each|in each|on each), how many {t} [are there] [in all]", a=a, b=b, **s)
        return q, "%d * %d = %d." % (a, b, a * b), "Equal groups: I multiply.", a * b
    a, b = a % 10 + 2, b % 10 + 2
    q = say(rng, "[{w} (share|shares|split|splits)] {n} {t} (shared among|for|divided between|among) {b} (friends|children|people|boxes), how many [{t}] (each|for each|does each get)", n=a * b, b=b, **s)
    return q, "%d / %d = %d." % (a * b, b, a), "Sharing: I divide.", a


def compared(rng):
    a, b = rng.randrange(10 ** rng.choice([1, 2, 3])), rng.randrange(10 ** rng.choice([1, 2, 3]))
    if a == b:
        b += 1
    big, low = max(a, b), min(a, b)
    kind, s = rng.randrange(5), dict(a=keep(str(a)), b=keep(str(b)))
    if kind == 0:
        return say(rng, "(which|what) [number] is (larger|bigger|greater|more|higher)[,|:] {a} or {b}", **s), "%d is larger than %d." % (big, low), "I compare.", None
    if kind == 1:
        return say(rng, "(which|what) [number] is (smaller|less|lower)[,|:] {a} or {b}", **s), "%d is smaller than %d." % (low, big), "I compare.", None
    if kind == 2:
        return say(rng, "is {a} (bigger|larger|more|greater|higher) than {b}", **s), ("Yes, %d is larger than %d." if a > b else "No, %d is smaller than %d.") % (a, b), "I compare.", None
    if kind == 3:
        q = say(rng, "is {a} [an] (even or odd|odd or even|even|even number|odd|odd number)", **s)
        even = a % 2 == 0
        if "or" in q.split():
            return q, "%d is %s." % (a, "even" if even else "odd"), "I look at the last digit.", None
        yes = even == ("even" in q)
        return q, "%s, %d is %s." % ("Yes" if yes else "No", a, "even" if even else "odd"), "I look at the last digit.", None
    if rng.random() < 0.6:
        return say(rng, "(what|which number) (comes|is|follows) after {a}", **s), "After %d comes %d." % (a, a + 1), "One more.", a + 1
    return say(rng, "(what|which number) (comes|is) before {a}", a=keep(str(a + 1))), "Before %d comes %d." % (a + 1, a), "One less.", a


def counted(rng):
    low = rng.choice([1, 1, 1, 0, rng.randrange(1, 20)])
    high = low + rng.randrange(3, 13)  # at most 31 numbers
    if rng.random() < 0.1:
        return say(rng, "count (down|backwards) from {b}", b=high), ", ".join(map(str, range(high, 0, -1))) + ".", "I count down.", None
    if rng.random() < 0.1:
        return say(rng, "count (down|backwards) from {b} to {a}", a=low, b=high), ", ".join(map(str, range(high, low - 1, -1))) + ".", "I count down.", None
    if low == 1 and rng.random() < 0.4:
        return say(rng, "(count|can you count|count up) to {b}", b=high), ", ".join(map(str, range(1, high + 1))) + ".", "I count.", None
    return say(rng, "(count|list the numbers|numbers|can you count) (from|) {a} (to|until) {b}", a=low, b=high), ", ".join(map(str, range(low, high + 1))) + ".", "I count.", None


def in_words(rng):
    n = rng.randrange(rng.choice([20, 100, 1000, 10000]))
    w = number_words(n)
    if rng.random() < 0.55:
        return say(rng, "(write|spell|say|put) [out] [the number] {n} in words|{n} in (words|letters)|spell (out|the number|) {n}|how do you (write|say|spell) {n} [in words]", n=keep(str(n))), "%d in words is %s." % (n, w), "The digits are %s." % " ".join(str(n)), n
    return say(rng, "(what|which) number is {w}|{w} (in digits|as a number|in numbers)|write {w} (in digits|as a number)", w=keep(w)), "%s is %d." % (w[0].upper() + w[1:], n), "I turn the words into digits.", n


UNITS = [("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24), ("weeks", "days", 7), ("years", "months", 12), ("kilometers", "meters", 1000), ("meters", "centimeters", 100),
         ("km", "meters", 1000), ("kg", "grams", 1000), ("kilograms", "grams", 1000), ("centimeters", "millimeters", 10), ("dozen", "eggs", 12), ("liters", "milliliters", 1000), ("tons", "kilograms", 1000),
         ("centuries", "years", 100), ("decades", "years", 10), ("feet", "inches", 12), ("dollars", "cents", 100), ("euros", "cents", 100)]


def converted(rng):
    large, small, factor = rng.choice(UNITS)
    n = rng.randrange(1, rng.choice([6, 11, 21]))
    if rng.random() < 0.75:
        return say(rng, "how many {s} (are|are there|) in {n} {l}|{n} {l} in {s}|(convert|change) {n} {l} (to|into) {s}|{n} {l} (are|is) how many {s}", n=keep(str(n)), l=large, s=small), "%d * %d = %d." % (n, factor, n * factor), "One has %d." % factor, n * factor
    return say(rng, "how many {l} (are|are there in|make up|in) {n} {s}|{n} {s} in {l}|(convert|change) {n} {s} (to|into) {l}", n=keep(str(n * factor)), l=large, s=small), "%d / %d = %d." % (n * factor, factor, n), "One has %d." % factor, n


def weekday(rng):
    """As families.py has it, in other words."""
    day, back = rng.randrange(7), rng.random() < 0.35
    n = rng.randrange(1, rng.choice([7, 7, 15, 31]))
    weeks, rest = divmod(n, 7)
    target, side = DAYS[(day - n if back else day + n) % 7], "before" if back else "after"
    days = "day" if n == 1 else "days"
    turn = "[what day is|which day is|what is|what day comes|which weekday is] {n} {d} {s} {x}|if (today is|it is) {x}, what day (is it|was it) {n} {d} " + ("(ago|earlier)" if back else "(later|from now|on)") + "|today is {x}, what day is " + ("it {n} {d} back" if back else "in {n} {d}")
    text = "%d %s %s %s is %s." % (rest, "day" if rest == 1 else "days", side, DAYS[day], target)
    if weeks:
        whole = "%d days are %d %s" % (n, weeks, "week" if weeks == 1 else "weeks")
        text = "%s and %d %s, and %s" % (whole, rest, "day" if rest == 1 else "days", text) if rest else "%s, so it is %s again." % (whole, target)
    return say(rng, turn, n=keep(str(n)), d=days, s=side, x=keep(DAYS[day])), text, "A week has 7 days.", None


KINDS = [(plain, 55), (converted, 5), (weekday, 3), (three, 6), (single, 10), (told, 9), (compared, 9), (counted, 4), (in_words, 7)]
_FUNCTIONS, _WEIGHTS = [k for k, _ in KINDS], [w for _, w in KINDS]


def ask(rng):
    return rng.choices(_FUNCTIONS, _WEIGHTS)[0](rng)


def go_on(rng, value):
    """The next turn, with what came out before."""
    op = rng.choice("++--**")
    b = rng.randrange(1, rng.choice([10, 10, 30, 100])) if op != "*" else rng.randrange(2, 10)
    pattern = {"+": "(and|now|ok) (plus|add) {b}|plus {b}|add {b} [to that]|+ {b}|+{b}|{b} more", "-": "[and|now] minus {b}|(subtract|take away) {b} [from that]|- {b}|-{b}|{b} less",
               "*": "[and|now] times {b}|multiply (that|it) (by|with) {b}|* {b}|x {b}"}[op]
    return say(rng, pattern, b=keep(str(b))), worked(value, op, b), "I go on with %d." % value, result(value, op, b)
