#!/bin/bash
# A Slurm cluster of N nodes (4) on this machine, for tests: each node has a separate network, host
# name and process namespace; slurmctld and slurmd are the real ones. No root, no munge; nothing is
# left but files in FOLDER, an absolute path.
#   fleetbed.sh FOLDER     reads "NUMBER COMMAND" a line from standard input and writes what a
#                          command says to FOLDER/NUMBER.out, then its code to FOLDER/NUMBER.rc
# FOLDER/ready exists once all nodes are idle. Commands are of this shell: on NODE CMD... (n1, ctl),
# kill_node I, start_node I, isolate I, restore_link I. The end of standard input ends everything.
# Needs slurmctld, slurmd, slurm-client, iproute2, util-linux, and root or namespaces for users.
set -u
export PATH=$PATH:/usr/sbin:/sbin
if [ "${FLEETBED_INSIDE:-}" != yes ]; then
  user=()
  [ "$(id -u)" = 0 ] || user=(--user --map-current-user --keep-caps)
  FLEETBED_INSIDE=yes exec unshare "${user[@]}" --net --mount --pid --fork --kill-child \
    --mount-proc bash "$0" "$@"
fi
folder=$1
nodes=${N:-4}
state=$folder/state
mkdir -p "$state/state" "$state/log"

mount -t tmpfs run /run && mkdir -p /run/netns || exit 1
ip netns add switch || exit 1
ip -n switch link add bridge type bridge && ip -n switch link set bridge up || exit 1
add_machine() {  # name, address
  ip netns add "$1"
  ip -n switch link add "v-$1" type veth peer name eth0 netns "$1"
  ip -n switch link set "v-$1" master bridge up
  ip -n "$1" addr add "$2/24" dev eth0
  ip -n "$1" link set eth0 up
  ip -n "$1" link set lo up
}
{
  echo 127.0.0.1 localhost
  echo 10.77.0.254 ctl
  for i in $(seq "$nodes"); do echo "10.77.0.$i n$i"; done
} >"$state/hosts"
mount --bind "$state/hosts" /etc/hosts || exit 1
add_machine ctl 10.77.0.254
for i in $(seq "$nodes"); do add_machine "n$i" "10.77.0.$i"; done

# cred_expire: a job that is queued again begins without two minutes of waiting. SlurmdTimeout: a
# dead node is seen after 25 s, in place of some minutes.
export SLURM_CONF=$state/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=fleetbed
SlurmctldHost=ctl(10.77.0.254)
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$state/state
SlurmdSpoolDir=$state/spool.%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.%n.pid
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdLogFile=$state/log/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=6
KillWait=${KILL_WAIT:-5}
SlurmdParameters=config_overrides
MailProg=/bin/true
CONF
for i in $(seq "$nodes"); do
  mkdir -p "$state/spool.n$i" "$state/tmp.n$i"
  echo "NodeName=n$i NodeAddr=10.77.0.$i CPUs=2 RealMemory=2000"
done >>"$SLURM_CONF"
echo "PartitionName=all Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP" >>"$SLURM_CONF"

# A machine's first process: with it ends all that is on it. It takes in orphans, as init does:
# slurmd does not, and would wait for them. (Not `ip netns exec`, which hides /sys/fs/cgroup from
# slurmd.)
machine() {
  local name=$1
  shift
  exec nsenter --net=/run/netns/"$name" unshare --uts --mount --pid --fork --kill-child \
    --mount-proc bash -c "hostname $name
      [ -d $state/tmp.$name ] && mount --bind $state/tmp.$name /var/tmp
      \"\$@\" & wait" _ "$@"
}
on() {
  local name=$1
  shift
  nsenter --net=/run/netns/"$name" unshare --uts sh -c "hostname $name; exec \"\$@\"" _ "$@"
}
start_node() {
  (machine "n$1" slurmd -D -N "n$1") >>"$state/log/slurmd.n$1.out" 2>&1 &
  echo $! >"$state/n$1.process"
}
kill_node() { kill -9 "$(cat "$state/n$1.process")"; }
isolate() { ip -n switch link set "v-n$1" down; }
restore_link() { ip -n switch link set "v-n$1" up; }

(machine ctl slurmctld -D -i) >>"$state/log/slurmctld.out" 2>&1 &
for i in $(seq "$nodes"); do start_node "$i"; done
for k in $(seq 200); do
  [ "$(timeout 1 nsenter --net=/run/netns/ctl sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ] &&
    break
  sleep 0.1
done
if [ "$k" = 200 ]; then
  tail "$state"/log/*
  exit 1
fi
touch "$folder/ready"
while read -r number command; do
  eval "$command" >"$folder/$number.out" 2>&1 </dev/null
  echo $? >"$folder/$number.rc.tmp"
  mv "$folder/$number.rc.tmp" "$folder/$number.rc"
done
