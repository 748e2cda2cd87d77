: "${LAB:?names the directory of the laboratory}" "${RUN:?begins the names of its namespaces}"
# What nova-compute does: each VM starts on the host that the answer names, and
# the edge module hears which device it is behind.
for vm in 0 1; do
    host=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["host"])' "$LAB/vm$vm.json")
    ip netns add $RUN-vm$vm
    ip link add tap netns $RUN-$host type veth peer name eth0 netns $RUN-vm$vm
    ip netns exec $RUN-$host ip link set tap master br0 up
    ip netns exec $RUN-vm$vm ip link set eth0 up
    ip netns exec $RUN-vm$vm ip addr add 192.168.79.10$vm/24 dev eth0
    mac=$(ip netns exec $RUN-vm$vm cat /sys/class/net/eth0/address)
    cat > "$LAB/$host/ports.new" <<EOF
{"ports": [{"vm": "00000000-0000-4000-8000-00000000000$vm", "dev": "tap",
            "mac": "$mac", "ips": ["192.168.79.10$vm"]}]}
EOF
    mv "$LAB/$host/ports.new" "$LAB/$host/ports.json"
    echo "VM $vm runs on $host"
done
# Wait until the controller sees both VMs run.
timeout 120 ip netns exec $RUN-switch sh -c \
    'until curl -fs http://192.168.79.1:8791/v1/coflows | grep -q active; do sleep 1; done'
