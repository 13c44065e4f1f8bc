#!/usr/bin/env bash
# Two hosts on one machine, for tests: network namespaces with a host name of their own, joined by a cable.
#   hosts.sh up | down          as root
#   hosts.sh run COMMAND...     on the first host
#   hosts.sh rsh HOST WORDS...  what mpirun calls to start its daemon on the other one (plm_rsh_agent)
# REDMPI_TEST_SECOND, if set, is put before the second host's command: NAME=VALUE that only that host has.
set -euo pipefail

space() { printf 'redmpi-test-%s' "$1"; }

case $1 in
up)
    for host in 1 2; do
        ip netns add "$(space $host)"
        ip netns exec "$(space $host)" ip link set lo up
    done
    ip link add redmpi1 netns "$(space 1)" type veth peer name redmpi2 netns "$(space 2)"
    for host in 1 2; do
        ip netns exec "$(space $host)" ip addr add 10.77.0.$host/24 dev redmpi$host
        ip netns exec "$(space $host)" ip link set redmpi$host up
    done
    ;;
down)
    for host in 1 2; do
        ip netns del "$(space $host)" 2>/dev/null || true
    done
    ;;
run)
    shift
    exec ip netns exec "$(space 1)" unshare --uts bash -c 'hostname host1; exec "$@"' hosts "$@"
    ;;
rsh)
    host=${2##*.}
    shift 2
    exec ip netns exec "$(space "$host")" unshare --uts \
        bash -c "hostname host$host; export ${REDMPI_TEST_SECOND:-REDMPI_TEST_NONE=1}; $*"
    ;;
*)
    echo "hosts.sh: '$1' is not known" >&2
    exit 2
    ;;
esac
