#!/usr/bin/env bash
# Installs the system packages the test suite needs and the machine lacks (Debian and Ubuntu).
# MuJoCo renders off screen through OSMesa (MUJOCO_GL=osmesa), and the preview page is looked at in
# headless Chromium; gym-pusht's OpenCV links libGL; the benchmarks' slow link is made with ip and tc.
# No Python package carries any of them.
set -euo pipefail

have_library() { # have_library SONAME
    ldconfig -p 2>/dev/null | grep -qF "$1" || compgen -G "/usr/lib/*/$1*" >/dev/null
}

missing=()
have_library libOSMesa.so || missing+=(libosmesa6)
have_library libGL.so.1 || missing+=(libgl1)
command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)
command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)

if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "system_packages: missing ${missing[*]} (Debian names); install their equivalents, then run make again" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "system_packages: missing ${missing[*]}; run: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
