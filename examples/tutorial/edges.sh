: "${LAB:?names the directory of the laboratory}" "${RUN:?begins the names of its namespaces}"
# An edge module on each hypervisor. The uplinks carry 100 Mbit/s.
for n in 1 2; do
    mkdir -p "$LAB/h$n"
    cat > "$LAB/h$n/edge.conf" <<EOF
[edge]
host = h$n
controller_url = http://192.168.79.1:8791
uplink_dev = uplink
link_egress_bps = 100e6
link_ingress_bps = 100e6
ports_file = $LAB/h$n/ports.json
state_dir = $LAB/h$n/state
[probe]
address = 192.168.79.1$n
EOF
    nsenter --net=/run/netns/$RUN-h$n virtco-edge --config-file "$LAB/h$n/edge.conf" \
        > "$LAB/h$n/edge.log" 2>&1 &
    echo $! > "$LAB/h$n/edge.pid"
done
# Wait until each link is measured.
timeout 120 ip netns exec $RUN-switch sh -c \
    'until curl -fs http://192.168.79.1:8791/v1/hosts | grep -q "measured\".*measured\""; do sleep 1; done'
