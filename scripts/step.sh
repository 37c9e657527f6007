# Sourced by scripts that do one thing after the other.

# step NAME BUDGET COMMAND...: a headline, the command, and the seconds that it took. More than its budget (0: none)
# is said, and fails nothing: a busy machine is no fault of the code.
step() {
    local name=$1 budget=$2 begun=$SECONDS
    shift 2
    printf '\n==== %s\n' "$name"
    current=$name
    "$@"
    took "$name" "$budget" $((SECONDS - begun))
}

took() {
    printf '==== %s: %d s' "$1" "$3"
    if [ "$2" -gt 0 ]; then printf ' of %d s' "$2"; fi
    if [ "$2" -gt 0 ] && [ "$3" -gt "$2" ]; then printf ', OVER ITS BUDGET'; fi
    printf '\n'
}
