# Completion for fish: install it as completions/dgemma.fish. Commands and options are read from the program's own help.
complete -c dgemma -n __fish_use_subcommand -f -a "(dgemma --help | awk '/^  [a-z]/ {name = \$1; \$1 = \"\"; print name \"\t\" substr(\$0, 2)}')"
complete -c dgemma -n 'not __fish_use_subcommand' -a "(dgemma (commandline -opc)[2] --help 2>/dev/null | string match -ar -- '--[a-z-]+')"
