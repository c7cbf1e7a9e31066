#!/bin/sh
# One host of scripts/rdma-faults.mjs. Host 1: the prefill engine, and replays until `done` appears; host 2: two decode
# engines, the second killed and started again for each `kill-N` that appears. Results lie in $DUALPATH_OUT.
set -u
dualpath="node dist/cli/main.js"
token=$DUALPATH_OUT/token
store=$1
engine() { # name role port
  $dualpath engine --role "$2" --name "$1" --listen "$DUALPATH_RXE_ADDRESS:$3" --token-file "$token" --store "$store" \
    --share-port >>"$DUALPATH_OUT/$1.out" 2>>"$DUALPATH_OUT/$1.log" &
}
if [ "$DUALPATH_RXE_HOST" = 2 ]; then
  engine d0 decode 7001; first=$!
  engine d1 decode 7002; second=$!
  kills=0
  while [ ! -e "$DUALPATH_OUT/done" ]; do
    if [ -e "$DUALPATH_OUT/kill-$((kills + 1))" ]; then
      kills=$((kills + 1))
      kill -9 $second; wait $second
      engine d1 decode 7002; second=$!
      touch "$DUALPATH_OUT/killed-$kills"
    fi
    sleep 0.2
  done
  kill -TERM $first $second; wait $first $second
  exit 0
fi
engine p0 prefill 7001; prefill=$!
runs=0
while [ ! -e "$DUALPATH_OUT/done" ]; do
  runs=$((runs + 1))
  timeout 300 $dualpath replay examples/traces/agent-sessions-sample.jsonl --sessions 6 --turns 4 --scale 0.00390625 \
    --mode dualpath --engines 10.77.0.1:7001,10.77.0.2:7001,10.77.0.2:7002 --token-file "$token" --store "$store" \
    --canaries --json --prefill-buffer 16MiB --decode-buffer 32MiB --prefill-hbm 16MiB --decode-hbm 32MiB \
    >"$DUALPATH_OUT/replay.part" 2>>"$DUALPATH_OUT/replay.log"
  echo $? >"$DUALPATH_OUT/replay-$runs.status"
  mv "$DUALPATH_OUT/replay.part" "$DUALPATH_OUT/replay-$runs.json"
done
kill -TERM $prefill; wait $prefill
exit 0
