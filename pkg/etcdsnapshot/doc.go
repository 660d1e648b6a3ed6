// SPDX-License-Identifier: Apache-2.0

// Package etcdsnapshot takes etcd snapshots into files and proves that such a file is whole: its checksum, the
// database's structure and what is in it. It reads files only, and knows neither machines nor places for backups. It
// doesn't import etcd's server, which is four times as large as all else that a command line tool needs.
package etcdsnapshot
