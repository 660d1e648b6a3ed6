// SPDX-License-Identifier: Apache-2.0

// Package disk fills the disk under an etcd that ichor-apiserver stores in: not its quota, which other tests do, but the
// file system itself. Its test mounts one, so it needs root, has the build tag chaosdisk, and runs by `make chaos-disk`.
package disk
