// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DryRun holds --dry-run. Only the server can tell what a write would do, so kubectl's "client" isn't there.
type DryRun struct {
	mode string
}

// ServerDryRun lets the server check and store nothing, whatever --dry-run says.
func ServerDryRun() DryRun { return DryRun{mode: "server"} }

// AddFlag adds --dry-run.
func (d *DryRun) AddFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.mode, "dry-run", "none", `"none" or "server": let the server check everything and show the outcome and its warnings, and store nothing.`)
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "server"
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "server"}, cobra.ShellCompDirectiveNoFileComp))
}

// Check refuses a mode that there isn't.
func (d *DryRun) Check() error {
	if d.mode != "none" && d.mode != "server" {
		return Usagef("--dry-run: %q is neither none nor server", d.mode)
	}
	return nil
}

// On is true when nothing is to be stored.
func (d *DryRun) On() bool { return d.mode == "server" }

// Options is what to say to the server.
func (d *DryRun) Options() []string {
	if d.On() {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Note is what kubectl puts behind a result.
func (d *DryRun) Note() string {
	if d.On() {
		return " (server dry run)"
	}
	return ""
}
