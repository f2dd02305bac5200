#!/usr/bin/env bash
# Makes what a new cluster with TLS needs, in a folder: an authority of its own
# (ca/), a certificate for each role (coordinator/, node/, operator/: tls.crt,
# tls.key, ca.crt) and one user's key (key, and its digest in api_keys/keys).
# Run again it keeps the authority and the keys of users, and makes new
# certificates. The authority's key belongs on no machine of the cluster.
set -Eeuo pipefail
umask 077

if (($# != 1)) || [[ $1 == -* ]]; then
  echo "usage: deploy/make_certs.sh FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
cd "$1"
days=${DAYS:-90}

new_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

mkdir -p ca api_keys
if [[ ! -e ca/ca.key ]]; then
  openssl req -x509 "${new_key[@]}" -days 3650 -subj "/CN=specwire CA" \
    -keyout ca/ca.key -out ca/ca.crt 2> /dev/null
fi
for role in coordinator node operator; do
  # A folder is replaced whole: certificate and key belong together.
  new=$(mktemp -d ".$role.XXXXXX")
  openssl req -new "${new_key[@]}" -subj "/CN=$role" \
    -keyout "$new/tls.key" -out "$new/request" 2> /dev/null
  openssl x509 -req -in "$new/request" -CA ca/ca.crt -CAkey ca/ca.key \
    -CAcreateserial -days "$days" -out "$new/tls.crt" \
    -extfile <(echo "subjectAltName=DNS:specwire-$role") 2> /dev/null
  rm "$new/request"
  cp ca/ca.crt "$new/ca.crt"
  rm -rf "$role"
  mv "$new" "$role"
done
if [[ ! -e key ]]; then
  openssl rand -hex 32 > key
  printf '%s  first user\n' "$(tr -d '\n' < key | sha256sum | cut -c1-64)" \
    > api_keys/keys
fi
echo "made $PWD: certificates for $days days; keep ca/ca.key away from the" \
  "cluster's machines"
