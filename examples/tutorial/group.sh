: "${LAB:?names the directory of the laboratory}" "${RUN:?begins the names of its namespaces}"
# What nova-scheduler asks for each VM of a group: VM 0 sends 100 MB to VM 1.
# Each hypervisor has room for one more VM.
for vm in 0 1; do
    ip netns exec $RUN-switch curl -sS -X PUT \
        -H 'Content-Type: application/json' -d @- -o "$LAB/vm$vm.json" \
        http://192.168.79.1:8791/v1/placements/00000000-0000-4000-8000-00000000000$vm <<EOF
{"project_id": "demo", "reservation_id": "r-1", "display_name": "vm-$vm",
 "launch_index": $vm, "num_instances": 2,
 "hints": {"virtco:coflow": "copy",
           "virtco:tm": "[[0, \"100MB\"], [0, 0]]"},
 "flavor": {"vcpus": 1, "memory_mb": 512, "disk_gb": 1},
 "hosts": [
   {"host": "h1", "node": "h1",
    "free": {"vcpus": 1, "memory_mb": 512, "disk_gb": 1}},
   {"host": "h2", "node": "h2",
    "free": {"vcpus": 1, "memory_mb": 512, "disk_gb": 1}}]}
EOF
    python3 -m json.tool "$LAB/vm$vm.json"
done
