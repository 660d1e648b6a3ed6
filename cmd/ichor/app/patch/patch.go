// SPDX-License-Identifier: Apache-2.0

// Package patch holds the verbs of "ichor patch", one a file. What a patch would do is computed by the server and only
// drawn here.
package patch

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// waitTimeout is how long a patch may take to reach its machines before the wait ends: control planes have it one after the
// other, each with a look at the others' health.
const waitTimeout = 30 * time.Minute

// NewCommand makes "ichor patch".
func NewCommand(env *cli.Env) *cobra.Command {
	return cli.Group("patch", "List, show, preview and apply patches of machines' configurations",
		newList(env), newShow(env), newApply(env), newRender(env), newDiff(env))
}

// preview asks the server what writing a patch, or deleting it, would do.
func preview(ctx context.Context, client versioned.Interface, name string, spec v1alpha1.TalosConfigPatchPreviewSpec) (*v1alpha1.TalosConfigPatchPreview, error) {
	question := &v1alpha1.TalosConfigPatchPreview{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return client.IchorV1alpha1().TalosConfigPatches().CreatePreview(ctx, name, question, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
}

// titles are what people call the machines. Who may not list machines is shown their names.
func titles(ctx context.Context, client versioned.Interface) map[string]string {
	machines, err := lookup.Machines(ctx, client, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	known := map[string]string{}
	for i := range machines {
		known[machines[i].Name] = screen.MachineTitle(&machines[i])
	}
	return known
}

// differs tells whether a change of a patch would do anything.
func differs(preview *v1alpha1.TalosConfigPatchPreview) bool {
	return preview.Status.Machines.Changed > 0 || preview.Status.Machines.Refused > 0
}

// complete refuses an answer in which machines are missing.
func complete(preview *v1alpha1.TalosConfigPatchPreview) error {
	if left := preview.Status.Machines.NotComputed; left > 0 {
		return fmt.Errorf("patch %s: the server had no time for %s", preview.Name, screen.Plural(int(left), "machine", "machines"))
	}
	return nil
}
