: "${LAB:?names the directory of the laboratory}" "${RUN:?begins the names of its namespaces}"
# One controller, in the switch's namespace, with SQLite and no accounts.
mkdir -p "$LAB"
cat > "$LAB/virtco.conf" <<EOF
[api]
host = 192.168.79.1
[distributor]
host = 192.168.79.1
[controller]
state_dir = $LAB
EOF
ip netns exec $RUN-switch virtco-controller --config-file "$LAB/virtco.conf" \
    > "$LAB/controller.log" 2>&1 &
echo $! > "$LAB/controller.pid"
# It answers after some seconds.
timeout 120 ip netns exec $RUN-switch sh -c \
    'until curl -fs -o /dev/null http://192.168.79.1:8791/health; do sleep 1; done'
