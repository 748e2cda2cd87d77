: "${LAB:?names the directory of the laboratory}" "${RUN:?begins the names of its namespaces}"
# The classes go with the namespaces.
for pid in "$LAB"/*.pid "$LAB"/h?/edge.pid; do
    if [ -e "$pid" ]; then
        kill "$(cat "$pid")" || true
    fi
done
for namespace in $RUN-h1 $RUN-h2 $RUN-vm0 $RUN-vm1 $RUN-switch; do
    ip netns delete $namespace || true
done
rm -rf "$LAB"
