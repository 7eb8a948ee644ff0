#!/bin/sh
# Install Tailrace for one person, without root, network or compiler.
#
#   sh install.sh             # into ~/.local/share/tailrace-VERSION, with links in ~/.local/bin
#   sh install.sh DIRECTORY   # into DIRECTORY, with its command in DIRECTORY/bin
#
# PYTHON names the interpreter; otherwise it is the CPython on the PATH for which this archive has wheels. To remove
# Tailrace, remove the directory and the link.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
set -- "${1:-}" "$here"/wheels/tailrace-*-cp3*-manylinux*.whl
wheel=${2##*/}
number=${wheel#tailrace-}
number=${number%%-*}
minor=${wheel#*-cp3}
minor=${minor%%-*}
python=${PYTHON:-python3.$minor}
if [ "$("$python" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null)" != "3 $minor" ]; then
  echo "install.sh: $python is not a CPython 3.$minor that runs: load or install it, or name it with PYTHON=" >&2
  exit 1
fi
prefix=${1:-$HOME/.local/share/tailrace-$number}
"$python" -m venv "$prefix"
"$prefix/bin/python" -m pip install --disable-pip-version-check --quiet --isolated --no-index --find-links "$here/wheels" \
  tailrace tailrace-client obstore
if [ -z "$1" ]; then
  mkdir -p "$HOME/.local/bin"
  ln -sf "$prefix/bin/tailrace" "$HOME/.local/bin/tailrace"
fi
"$prefix/bin/tailrace" --version
echo "installed: $prefix/bin/tailrace"
