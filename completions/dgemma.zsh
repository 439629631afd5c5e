#compdef dgemma
# Completion for zsh: put it on $fpath as _dgemma. Commands and options are read from the program's own help.
local -a choices
if (( CURRENT == 2 )); then
    choices=(${(f)"$(dgemma --help | awk '/^  [a-z]/ {name = $1; $1 = ""; print name ":" substr($0, 2)}')"})
    _describe command choices
elif [[ $PREFIX == -* ]]; then
    choices=(${(f)"$(dgemma $words[2] --help 2>/dev/null | grep -o -e '--[a-z-]*' | sort -u)"})
    _describe option choices
else
    _files
fi
