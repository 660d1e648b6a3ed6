// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// Operations lists all operations.
func Operations(ctx context.Context, client versioned.Interface) ([]v1alpha1.TalosOperation, error) {
	var operations []v1alpha1.TalosOperation
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		list, err := client.IchorV1alpha1().TalosOperations().List(ctx, options)
		if err != nil {
			return nil, err
		}
		operations = append(operations, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return operations, nil
		}
	}
}

// Titles are the names that people know the machines by. Someone who may not list machines sees the objects' names.
func Titles(ctx context.Context, client versioned.Interface) screen.Titles {
	machines, err := Machines(ctx, client, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return screen.NewTitles(machines)
}

// CompleteOperations completes names of operations, with what each is and where as its description; the newest first. Keep
// chooses which. At most is how many the command takes; 0 is any number.
func CompleteOperations(env *cli.Env, atMost int, keep func(*v1alpha1.TalosOperation) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		client, err := env.Client()
		if err != nil || atMost > 0 && len(args) >= atMost {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		operations, _ := Operations(ctx, client)
		slices.SortStableFunc(operations, func(a, b v1alpha1.TalosOperation) int {
			return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
		})
		var names []cobra.Completion
		for i := range operations {
			operation := &operations[i]
			if keep != nil && !keep(operation) || slices.Contains(args, operation.Name) || !strings.HasPrefix(operation.Name, typed) {
				continue
			}
			names = append(names, cobra.CompletionWithDesc(operation.Name, describeOperation(operation)))
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func describeOperation(operation *v1alpha1.TalosOperation) string {
	words := []string{string(overview.OperationPhase(operation)), overview.OperationType(&operation.Spec)}
	if operation.Spec.Mode == v1alpha1.OperationModePlan {
		words = append(words, "plan only")
	}
	if operation.Status.Total > 0 {
		words = append(words, fmt.Sprintf("%d of %d done", operation.Status.Done, operation.Status.Total))
	}
	return strings.Join(words, ", ")
}
