#!/bin/sh
# A replay over two hosts, one engine each, joined by RDMA; run on both by `dualpath rxe`:
#
#   mkdir store
#   npx dualpath rxe --hosts 2 --share store:1MB/s -- sh scripts/rxe/replay.sh store TRACE [OPTIONS OF dualpath replay]
#
# Host 1 has the prefill engine and the replay, host 2 the decode engine. PREFILL_OPTIONS, DECODE_OPTIONS: further options of
# dualpath engine. The exit status is the replay's.
set -u
store=$1
shift
dualpath="node dist/cli/main.js"
token=$DUALPATH_OUT/token
if [ "$DUALPATH_RXE_HOST" = 2 ]; then
  until [ -s "$token" ]; do sleep 0.2; done
  $dualpath engine --role decode --name d0 --listen "$DUALPATH_RXE_ADDRESS:7001" --token-file "$token" --store "$store" \
    ${DECODE_OPTIONS:-} --json >"$DUALPATH_OUT/d0.json" & engine=$!
  until [ -e "$DUALPATH_OUT/replayed" ]; do sleep 0.5; done
  kill -TERM $engine
  wait $engine
  exit
fi
od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$token.part"
mv "$token.part" "$token"
$dualpath engine --role prefill --name p0 --listen "$DUALPATH_RXE_ADDRESS:7001" --token-file "$token" --store "$store" \
  ${PREFILL_OPTIONS:-} --json >"$DUALPATH_OUT/p0.json" & engine=$!
$dualpath replay "$@" --engines "$(echo "$DUALPATH_RXE_ADDRESSES" | sed 's/,/:7001,/'):7001" --token-file "$token" \
  --store "$store"
status=$?
touch "$DUALPATH_OUT/replayed"
kill -TERM $engine
wait $engine
exit $status
