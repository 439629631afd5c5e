# Completion for bash: source it, or install it as bash-completion/completions/dgemma. Commands and options are read from
# the program's own help, so that they are always those of the version at hand.
_dgemma() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(dgemma --help | awk '/^  [a-z]/ {print $1}') --help --version" -- "$word")
        return
    fi
    case $previous in
    --kv-type) mapfile -t COMPREPLY < <(compgen -W 'bf16 f32 q8_0 fp8' -- "$word") ;;
    --cpu-flags) mapfile -t COMPREPLY < <(compgen -W 'neon i8mm bf16 avx2 vnni amx ref' -- "$word") ;;
    --type)
        local types='BF16 F16 Q8_0 Q6_K Q5_K_M Q4_K_M Q4_K_D Q4_0 Q4_1 IQ4_NL IQ4_XS MXFP4_MOE'
        [ "$command" = quantize ] && types="$types FP8 NVFP4" || types="$types Q2_K IQ3_XXS IQ2_S IQ2_XXS IQ1_S"
        mapfile -t COMPREPLY < <(compgen -W "$types" -- "$word")
        ;;
    --synthetic) mapfile -t COMPREPLY < <(compgen -W 'BF16 F16 Q8_0 Q6_K Q5_K_M Q4_K_M Q4_K_D Q4_0 Q4_1 IQ4_NL IQ4_XS MXFP4_MOE Q2_K IQ3_XXS IQ2_S IQ2_XXS IQ1_S' -- "$word") ;;
    --shape) mapfile -t COMPREPLY < <(compgen -W '26b-a4b tiny' -- "$word") ;;
    --color) mapfile -t COMPREPLY < <(compgen -W 'auto always never' -- "$word") ;;
    --image-attention) mapfile -t COMPREPLY < <(compgen -W 'whole window causal' -- "$word") ;;
    --chat-template) mapfile -t COMPREPLY < <(compgen -W 'a b' -- "$word") ;;
    *)
        case $word in
        -*) mapfile -t COMPREPLY < <(compgen -W "$(dgemma "$command" --help 2>/dev/null | grep -o -e '--[a-z-]*')" -- "$word") ;;
        *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        esac
        ;;
    esac
}
complete -o filenames -F _dgemma dgemma
