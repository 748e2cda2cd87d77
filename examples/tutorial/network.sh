# A switch and two hypervisors, h1 and h2, with an uplink of 100 Mbit/s each.
ip netns add vt-switch
ip netns exec vt-switch ip link set lo up
ip netns exec vt-switch ip link add br0 type bridge
ip netns exec vt-switch ip link set br0 up
ip netns exec vt-switch ip addr add 192.168.79.1/24 dev br0

for n in 1 2; do
    ip netns add vt-h$n
    ip netns exec vt-h$n ip link set lo up
    ip netns exec vt-h$n ip link add br0 type bridge
    ip netns exec vt-h$n ip link set br0 up
    ip netns exec vt-h$n ip addr add 192.168.79.1$n/24 dev br0
    ip link add uplink netns vt-h$n type veth peer name port$n netns vt-switch
    ip netns exec vt-h$n ip link set uplink master br0 up
    ip netns exec vt-switch ip link set port$n master br0 up
    ip netns exec vt-switch tc qdisc add dev port$n root \
        tbf rate 100mbit burst 64k latency 50ms
done
