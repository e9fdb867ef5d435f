# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Defines a common interface to docker, podman and buildah. `images` and `lock` source it.
#
# The variable CONTAINERS selects one of the three. Without it, the first one that is installed is used; docker counts
# only if its daemon runs. podman and buildah run build steps in a chroot, without a container runtime.
export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}"

find_engine() {
  if [[ -n ${CONTAINERS:-} ]]; then return; fi
  if docker info >/dev/null 2>&1; then CONTAINERS=docker
  elif command -v podman >/dev/null; then CONTAINERS=podman
  elif command -v buildah >/dev/null; then CONTAINERS=buildah
  else
    echo "images: docker (with a running daemon), podman or buildah is required (Debian: buildah)" >&2
    return 2
  fi
}

# build OPTIONS...: builds an image from the checkout. Does not use the layer cache, because buildah's cache does not
# notice changes in the mounts of a step.
build() {
  case $CONTAINERS in
    docker) DOCKER_BUILDKIT=1 docker build --quiet "$@" . ;;
    *) "$CONTAINERS" build --quiet --layers=false --force-rm --format docker "$@" . ;;
  esac >/dev/null
}

has_image() {
  case $CONTAINERS in
    docker) docker image inspect "$1" ;;
    *) "$CONTAINERS" inspect --type image "$1" ;;
  esac >/dev/null 2>&1
}

# import TAR NAME: makes the image NAME from the file system in TAR.
import() {
  local container
  case $CONTAINERS in
    buildah)
      container=$(buildah from scratch)
      buildah add --quiet "$container" "$1" / >/dev/null
      buildah commit --quiet --rm "$container" "$2" >/dev/null
      ;;
    *) "$CONTAINERS" import "$1" "$2" >/dev/null ;;
  esac
}

# digest NAME: prints NAME@DIGEST, with the current digest of this image in its registry.
digest() {
  "$CONTAINERS" pull --quiet "$1" >/dev/null 2>&1 || return 1
  case $CONTAINERS in
    buildah) echo "$1@$(buildah inspect --type image --format '{{.FromImageDigest}}' "$1")" ;;
    *) echo "$1@$("$CONTAINERS" image inspect --format '{{index .RepoDigests 0}}' "$1" | sed 's/.*@//')" ;;
  esac
}

# in_image NAME COMMAND...: runs a command as root in a temporary container of the image NAME.
in_image() {
  local container image=$1
  shift
  case $CONTAINERS in
    buildah)
      container=$(buildah from "$image")
      buildah run --user root --volume "$PWD/docker:/docker:ro" "$container" -- "$@" || { buildah rm "$container" >/dev/null; return 1; }
      buildah rm "$container" >/dev/null
      ;;
    *) "$CONTAINERS" run --rm --user root --volume "$PWD/docker:/docker:ro" --entrypoint '' "$image" "$@" ;;
  esac
}

size_of() {
  case $CONTAINERS in
    buildah) buildah images --format '{{.Size}}' "$1" ;;
    *) "$CONTAINERS" images --format '{{.Size}}' "$1" ;;
  esac | head -1
}
