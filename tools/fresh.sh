#!/usr/bin/env bash
# The newcomer's path, for real: a bare Debian in a folder, the committed tree, and the two commands of README.md.
#
#   tools/fresh.sh                     ./demo and ./test on Debian 12
#   tools/fresh.sh --demo-only         ./demo alone
#   tools/fresh.sh --suite noble       Ubuntu 24.04, where the machine has a mirror that serves it (--mirror URL)
#   tools/fresh.sh --root DIR --keep   where the system is made; DIR must not exist; --keep leaves it for a look
#   tools/fresh.sh --packages-only     stop once apt inside has installed the package list
#   tools/fresh.sh --cores LIST        run on these cores only, e.g. 0,1
#
# Needs root, debootstrap and a package mirror; no container program. The mirror is the host's own (its apt sources).
# All mounts live in a mount namespace of their own and are also undone by a trap.
set -euo pipefail

suite=bookworm mirror="" root="" keep=0 demo_only=0 packages_only=0 cores=""
while [[ $# -gt 0 ]]; do
  case "$1" in
    --suite) suite="$2"; shift 2 ;;
    --mirror) mirror="$2"; shift 2 ;;
    --root) root="$2"; shift 2 ;;
    --cores) cores="$2"; shift 2 ;;
    --keep) keep=1; shift ;;
    --demo-only) demo_only=1; shift ;;
    --packages-only) packages_only=1; shift ;;
    -h|--help) sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
    *) echo "fresh.sh: unknown argument '$1'" >&2; exit 2 ;;
  esac
done

fail() { echo "fresh.sh: $*" >&2; exit 1; }
[[ $EUID -eq 0 ]] || fail "must run as root (debootstrap and chroot need it)"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
cd "$(dirname "$0")/.."
git rev-parse --verify -q HEAD >/dev/null || fail "needs a git checkout: the committed tree is what is tried"

if [[ -z "${LS_FRESH_NAMESPACE:-}" ]] && unshare --mount true 2>/dev/null; then
  args=(--suite "$suite")
  [[ -n "$mirror" ]] && args+=(--mirror "$mirror")
  [[ -n "$root" ]] && args+=(--root "$root")
  [[ -n "$cores" ]] && args+=(--cores "$cores")
  (( keep )) && args+=(--keep)
  (( demo_only )) && args+=(--demo-only)
  (( packages_only )) && args+=(--packages-only)
  LS_FRESH_NAMESPACE=1 exec unshare --mount --propagation private "$0" "${args[@]}"
fi

# --- where from: the first source of this machine that serves the suite, and its update and security suites
source_uris() { apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null | sort -u; }
if [[ -z "$mirror" ]]; then
  mirror="$(source_uris | awk -v s="$suite" '$2 == s {print $1; exit}')"
fi
[[ -n "$mirror" ]] || fail "no apt source of this machine serves '$suite'; name one with --mirror"
script="$suite"
if [[ ! -e /usr/share/debootstrap/scripts/$suite ]]; then
  script=sid
  [[ "$mirror" == *ubuntu* ]] && script=gutsy  # the script behind every later Ubuntu
fi
[[ -e /usr/share/debootstrap/scripts/$script ]] || fail "debootstrap has no script for '$suite'"

made_parent=""
if [[ -z "$root" ]]; then
  made_parent="$(mktemp -d)"
  root="$made_parent/root"
fi
root="$(realpath -m "$root")"
[[ ! -e "$root" ]] || fail "$root exists already"

unmount_all() {
  local point
  for point in dev/shm dev/pts dev sys proc; do
    if mountpoint -q "$root/$point"; then umount -l "$root/$point" || true; fi
  done
}
finish() {
  local rc=$?
  unmount_all
  if (( keep )); then
    echo "fresh.sh: the system is left in $root"
  elif ! grep -q " $root/" /proc/self/mounts; then
    rm -rf --one-file-system "$root" ${made_parent:+"$made_parent"}
  fi
  (( rc == 0 )) || echo "fresh.sh: FAILED (exit $rc)"
}
trap finish EXIT
trap 'exit 130' INT TERM

timings=()
timed() {  # timed TITLE COMMAND...
  local title="$1" start=$SECONDS
  shift
  echo "fresh: $title"
  "$@" || fail "'$title' failed after $(( SECONDS - start )) s"
  timings+=("$(printf '%6d s  %s' $(( SECONDS - start )) "$title")")
}

bootstrap() {
  local keyring=()
  [[ "$script" == gutsy ]] && keyring=(--no-check-gpg)
  debootstrap --variant=minbase ${keyring[@]+"${keyring[@]}"} "$suite" "$root" "$mirror" \
    "/usr/share/debootstrap/scripts/$script" >"$root.log" 2>&1 || { tail -20 "$root.log" >&2; return 1; }
  rm -f "$root.log"
}

# --- the host's way to the network: names, certificates, proxy; nothing else comes from it
copy_client_settings() {
  local file
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
    [[ -e "$file" ]] && cp -L "$file" "$root$file"
  done
  mkdir -p "$root/etc/ssl/certs" "$root/usr/local/share/ca-certificates"
  [[ -e /etc/ssl/certs/ca-certificates.crt ]] &&
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates/" \; 2>/dev/null || true
  for file in $(grep -ls '^ *Acquire::' /etc/apt/apt.conf.d/* 2>/dev/null); do
    cp "$file" "$root/etc/apt/apt.conf.d/"
  done
  local components=main
  [[ "$mirror" == *ubuntu* ]] && components="main universe"
  echo "deb $mirror $suite $components" >"$root/etc/apt/sources.list"
  source_uris | awk -v s="$suite" -v c="$components" '$2 == s"-updates" || $2 == s"-security" {print "deb", $1, $2, c}' \
    >>"$root/etc/apt/sources.list"
}

mount_all() {
  mount -t proc proc "$root/proc"
  mount --bind /sys "$root/sys"
  mount --bind /dev "$root/dev"
  mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666 2>/dev/null || true
  mount -t tmpfs tmpfs "$root/dev/shm"
}

copy_tree() {
  mkdir -p "$root/lockstep"
  git archive HEAD | tar -x -C "$root/lockstep"
}

inside() {  # a clean environment: only what says how to reach the network
  local keep_env=() name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY \
              PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT PIP_DEFAULT_TIMEOUT \
              SSL_CERT_FILE REQUESTS_CA_BUNDLE; do
    [[ -n "${!name:-}" ]] && keep_env+=("$name=${!name}")
  done
  local pin=()
  [[ -n "$cores" ]] && pin=(taskset -c "$cores")
  ${pin[@]+"${pin[@]}"} chroot "$root" env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${keep_env[@]+"${keep_env[@]}"} /bin/bash -c "cd /lockstep && $1" </dev/null
}

echo "fresh: $suite into $root; tree: $(git log -1 --format='%h %s')"
git diff --quiet HEAD -- || echo "fresh: note: uncommitted changes are not part of what is tried"
timed "debootstrap ($suite, minbase)" bootstrap
copy_client_settings
mount_all
copy_tree
if (( packages_only )); then
  timed "apt inside installs the package list" inside "./tools/packages.sh build test"
  timed "a second call finds nothing to do" inside "./tools/packages.sh build test"
else
  timed "./demo" inside ./demo
  (( demo_only )) || timed "./test" inside ./test
fi
echo
echo "fresh: all of it worked on a bare $suite; $(du -sxh "$root" 2>/dev/null | cut -f1) on disk"
printf '%s\n' "${timings[@]}"
