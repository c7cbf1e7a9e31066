#!/bin/sh
# One host of scripts/rdma-faults.mjs. Host 1: the prefill engine, and replays until `done` appears; host 2: decode engines, of
# which those that `kill-N` names are killed and started again; the next replay waits for them. Results lie in $DUALPATH_OUT.
set -u
store=$1
out=$DUALPATH_OUT
killable="d1 d2 d3"
dualpath="node --report-on-signal --report-directory=$out dist/cli/main.js"
engine() { # name role port
  $dualpath engine --role "$2" --name "$1" --listen "$DUALPATH_RXE_ADDRESS:$3" --token-file "$out/token" --store "$store" \
    --share-port >>"$out/$1.out" 2>>"$out/$1.log" &
  eval "pid_$1=$!"
}
decode() { # name
  eval "starts_$1=$(starts "$1")"
  engine "$1" decode "700${1#d}"
}
alive() { # name
  eval "kill -0 \$pid_$1 2>/dev/null"
}
starts() { # name
  cat "$out/$1.log" 2>/dev/null | grep -c 'engine on'
}
# Whether the process that was started last listens.
up() { # name
  eval "[ $(starts "$1") -gt \$starts_$1 ]" && alive "$1"
}
# Ends an engine; one that does not end within 30 s says what it is at, and counts as hung.
end() { # name
  eval "pid=\$pid_$1"
  kill -TERM "$pid" 2>/dev/null
  for i in $(seq 150); do alive "$1" || break; sleep 0.2; done
  if alive "$1"; then
    cat /proc/"$pid"/task/*/stack >"$out/hung-$1" 2>&1
    kill -USR2 "$pid"
    sleep 3
    kill -9 "$pid"
  fi
  wait "$pid"
}

if [ "$DUALPATH_RXE_HOST" = 2 ]; then
  for name in d0 $killable; do decode $name; done
  kills=0
  while [ ! -e "$out/done" ]; do
    if [ -e "$out/kill-$((kills + 1))" ]; then
      kills=$((kills + 1))
      eval "pid=\$pid_$(cat "$out/kill-$kills")"
      kill -9 "$pid"
      wait "$pid"
      touch "$out/killed-$kills"
    fi
    ready=true
    for name in d0 $killable; do
      alive $name || decode $name
      up $name || ready=false
    done
    if $ready; then rm -f "$out/idle"; fi
    sleep 0.2
  done
  for name in d0 $killable; do alive $name && end $name; done
  exit 0
fi

starts_p0=0
engine p0 prefill 7001
while ! up p0; do
  alive p0 || exit 1
  sleep 0.2
done
runs=0
while [ ! -e "$out/done" ]; do
  touch "$out/idle"
  while [ -e "$out/idle" ] && [ ! -e "$out/done" ]; do sleep 0.2; done
  runs=$((runs + 1))
  timeout 300 $dualpath replay examples/traces/agent-sessions-sample.jsonl --sessions 6 --turns 8 --scale 0.0078125 \
    --mode dualpath --engines 10.77.0.1:7001,10.77.0.2:7000,10.77.0.2:7001,10.77.0.2:7002,10.77.0.2:7003 \
    --token-file "$out/token" --store "$store" --canaries --json \
    --prefill-buffer 16MiB --decode-buffer 16MiB --prefill-hbm 16MiB --decode-hbm 16MiB \
    >"$out/replay.part" 2>>"$out/replay.log"
  echo $? >"$out/replay-$runs.status"
  mv "$out/replay.part" "$out/replay-$runs.json"
done
end p0
exit 0
