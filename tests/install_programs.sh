#!/bin/sh
# Install the programs that some tests need: a browser, Java, PostgreSQL, Node, LaTeX.
#
#     sh tests/install_programs.sh FOLDER    (FOLDER: where the Node package goes)
#
# Debian packages are installed by root, and with sudo in CI. For anybody else, the missing ones are
# listed with the command that installs them; the tests that need them are skipped.
set -eu
node_folder=$1

has() { command -v "$1" >/dev/null 2>&1; }

missing=""
has chromium || has chromium-browser || has google-chrome || missing="$missing chromium"
has java || missing="$missing openjdk-17-jre-headless"
has pg_ctl || ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 || missing="$missing postgresql"
{ has node && has npm; } || missing="$missing nodejs npm"
has pdflatex || missing="$missing texlive-latex-recommended"

if [ -n "$missing" ]; then
  as_root=""
  if [ "$(id -u)" -ne 0 ]; then as_root=sudo; fi
  if has apt-get && { [ -z "$as_root" ] || { [ -n "${CI:-}" ] && has sudo; }; }; then
    echo "Installing$missing"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086  # a list of packages
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
      $missing >/dev/null
  else
    echo "Not installed:$missing. Tests that need them are skipped."
    echo "On Debian or Ubuntu: sudo apt-get install$missing"
  fi
fi

# The package's install scripts would fetch libraries for GPUs; the CPU runtime is in the package.
if has npm && [ ! -d "$node_folder/node_modules/onnxruntime-node" ]; then
  npm install --silent --ignore-scripts --no-audit --no-fund --no-save --prefix "$node_folder" \
    onnxruntime-node@1.30.0 || echo "Not installed: onnxruntime-node. Its tests are skipped."
fi
