# Sourced by scripts with several steps.

# step NAME BUDGET COMMAND...: prints a headline, runs the command, and prints the seconds. Exceeding the budget (0:
# none) is reported without a failure: the machine may be busy.
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
