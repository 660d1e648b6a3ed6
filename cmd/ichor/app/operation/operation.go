// SPDX-License-Identifier: Apache-2.0

// Package operation holds the verbs of "ichor operation", one a file: work on machines that takes a while, as it is seen
// and steered. What starts such work are verbs of the machines.
package operation

import (
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// NewCommand makes "ichor operation".
func NewCommand(env *cli.Env) *cobra.Command {
	cmd := cli.Group("operation", "List, show and watch operations, and suspend, resume and cancel them",
		newList(env), newShow(env), newWatch(env), newSuspend(env), newResume(env), newCancel(env))
	cmd.Aliases = []string{"operations", "op"}
	return cmd
}

func fetch(ctx context.Context, client versioned.Interface, name string) (*v1alpha1.TalosOperation, error) {
	return client.IchorV1alpha1().TalosOperations().Get(ctx, lookup.ObjectName(name), metav1.GetOptions{})
}

func isOpen(operation *v1alpha1.TalosOperation) bool { return !overview.OperationOver(operation) }
