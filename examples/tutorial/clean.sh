: "${LAB:?names the directory of the laboratory}"
# The classes go with the namespaces.
for pid in "$LAB"/*.pid "$LAB"/h?/edge.pid; do
    if [ -e "$pid" ]; then
        kill "$(cat "$pid")" || true
    fi
done
for namespace in vt-h1 vt-h2 vt-vm0 vt-vm1 vt-switch; do
    ip netns delete $namespace || true
done
rm -rf "$LAB"
