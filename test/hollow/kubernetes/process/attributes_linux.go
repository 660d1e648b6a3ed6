// SPDX-License-Identifier: Apache-2.0

package process

import "syscall"

// attributes puts the child into its own process group, so that an interrupt typed at the terminal reaches only the
// parent (which stops its children in order), and has the kernel kill it when the parent is gone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
