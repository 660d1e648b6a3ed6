// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

const (
	// childCommand is the hidden first argument of an executable that runs as a child of a hollow node.
	childCommand = "hollow-child"
	childEtcd    = "etcd"
)

// ChildMain runs the child that args (as os.Args) ask for. An executable that hosts hollow nodes calls it first thing in
// main, or in TestMain, and exits with code if it was handled.
func ChildMain(args []string) (handled bool, code int) {
	if len(args) < 2 || args[1] != childCommand {
		return false, 0
	}

	if len(args) < 3 || args[2] != childEtcd {
		fmt.Fprintf(os.Stderr, "%s is for hollow nodes only; it takes %s and its flags\n", childCommand, childEtcd)

		return true, 2
	}

	etcdmain.Main(append([]string{childEtcd}, args[3:]...))

	return true, 0
}
