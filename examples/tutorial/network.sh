: "${RUN:?begins the names of its namespaces}"
# A switch and two hypervisors, h1 and h2, with an uplink of 100 Mbit/s each.
ip netns add $RUN-switch
ip netns exec $RUN-switch ip link set lo up
ip netns exec $RUN-switch ip link add br0 type bridge
ip netns exec $RUN-switch ip link set br0 up
ip netns exec $RUN-switch ip addr add 192.168.79.1/24 dev br0

for n in 1 2; do
    ip netns add $RUN-h$n
    ip netns exec $RUN-h$n ip link set lo up
    ip netns exec $RUN-h$n ip link add br0 type bridge
    ip netns exec $RUN-h$n ip link set br0 up
    ip netns exec $RUN-h$n ip addr add 192.168.79.1$n/24 dev br0
    ip link add uplink netns $RUN-h$n type veth peer name port$n netns $RUN-switch
    ip netns exec $RUN-h$n ip link set uplink master br0 up
    ip netns exec $RUN-switch ip link set port$n master br0 up
    ip netns exec $RUN-switch tc qdisc add dev port$n root \
        tbf rate 100mbit burst 64k latency 50ms
done
