#!/usr/bin/env bash
# An image of a wheel of suiro, from Debian's packages and Python's, without any image of somebody else:
#
#   packaging/image/build.sh dist/0.2.0/suiro-0.2.0-py3-none-any.whl suiro.tar
#   EXTRAS=spark,registry packaging/image/build.sh dist/0.2.0/suiro-0.2.0-py3-none-any.whl suiro-spark.tar
#
# The first is for node, registry and console, the second for applications too; EXTRAS= is a node alone.
# It needs mmdebstrap and buildah, and a Python of the same version as the suite's (PYTHON). What is written is an OCI
# archive (`skopeo copy oci-archive:suiro.tar docker://...`, `podman load`), or with FORMAT=docker one of Docker's, which
# has the health check in it (`docker load`). No file in it is newer than SOURCE_DATE_EPOCH, which is now where it is not set.
set -euo pipefail
if [ $# != 2 ]; then
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//p}' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")/../.." && pwd)
wheel=$(realpath "$1")
out=$(realpath "$(dirname "$2")")/$(basename "$2")
: "${EXTRAS=registry}" "${SUITE:=bookworm}" "${SOURCES:=}" "${FORMAT:=oci}" "${PYTHON:=python3}" "${SOURCE_DATE_EPOCH:=$(date +%s)}"
export SOURCE_DATE_EPOCH
for tool in mmdebstrap buildah "$PYTHON"; do
    command -v "$tool" > /dev/null || { echo "build.sh: $tool is not installed here" >&2; exit 1; }
done
[ ! -e "$out" ] || { echo "build.sh: $out is there already" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== packages of Python"
mkdir "$work/wheels"
"$PYTHON" -m pip wheel --quiet --disable-pip-version-check --wheel-dir "$work/wheels" \
    --constraint "$here/constraints.txt" "$wheel${EXTRAS:+[$EXTRAS]}"

echo "== Debian $SUITE"
cat > "$work/install" <<'END'
set -eu
python3 -m venv /opt/suiro
/opt/suiro/bin/python -m pip install --quiet --no-index --no-compile --find-links /wheels "$1"
/opt/suiro/bin/python -m pip uninstall --quiet --yes pip setuptools
# Nobody may write there later, so the byte code is made now. Some packages have files for other Pythons among theirs,
# which do not compile and are not loaded.
/opt/suiro/bin/python -m compileall -qq --invalidation-mode unchecked-hash /opt/suiro/lib || true
# Python's and Debian's tools for installing are not needed any more.
apt-get purge --quiet --quiet --yes --autoremove python3-venv > /dev/null
useradd --no-create-home --uid 10001 --user-group --home-dir /var/lib/suiro --shell /usr/sbin/nologin suiro
install --directory --owner suiro --group suiro --mode 0700 /var/lib/suiro /var/lib/suiro/node
rm -rf /wheels /install
END
mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv,tini \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook="cp -r '$work/wheels' '$work/install' \"\$1\"" \
    --customize-hook="chroot \"\$1\" sh /install 'suiro${EXTRAS:+[$EXTRAS]}'" \
    --customize-hook='rm -rf "$1"/var/cache/ldconfig/aux-cache "$1"/var/log/*.log "$1"/var/log/apt' \
    "$SUITE" "$work/root.tar" ${SOURCES:+"$SOURCES"}

echo "== image"
name=${wheel##*/suiro-}
export BUILDAH_ISOLATION=chroot BUILDAH_FORMAT="$FORMAT"
image=$(buildah from scratch)
trap 'buildah rm "$image" > /dev/null 2>&1; rm -rf "$work"' EXIT
buildah add --quiet "$image" "$work/root.tar" / > /dev/null
buildah config \
    --user 10001:10001 --workingdir /var/lib/suiro --stop-signal SIGTERM --port 9092 --volume /var/lib/suiro \
    --env PATH=/opt/suiro/bin:/usr/bin:/bin --env PYTHONDONTWRITEBYTECODE=1 --env HOME=/var/lib/suiro \
    --env XDG_CACHE_HOME=/tmp/cache --env NUMBA_CACHE_DIR=/tmp/cache/kernels \
    --entrypoint '["/usr/bin/tini", "--", "/opt/suiro/bin/suiro"]' --cmd 'node --data /var/lib/suiro/node' \
    --label org.opencontainers.image.title=suiro --label "org.opencontainers.image.version=${name%%-*}" \
    --label 'org.opencontainers.image.licenses=Apache-2.0 AND MIT' "$image"
if [ "$FORMAT" = docker ]; then
    # OCI's format has no place for it.
    buildah config --healthcheck 'CMD /opt/suiro/bin/suiro cluster --bootstrap-servers 127.0.0.1:9092 --json' \
        --healthcheck-interval 30s --healthcheck-timeout 15s --healthcheck-start-period 120s "$image"
fi
buildah commit --quiet --format "$FORMAT" --timestamp "$SOURCE_DATE_EPOCH" --disable-compression=false "$image" \
    "$FORMAT-archive:$out:suiro:${name%%-*}" > /dev/null
echo "$out"
