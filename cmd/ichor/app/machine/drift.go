// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// stateUnknown is the state of a machine that was not compared.
const stateUnknown = "Unknown"

type driftOptions struct {
	env   *cli.Env
	print *output.Objects
}

func newDrift(env *cli.Env) *cobra.Command {
	options := &driftOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "drift [NAME...]",
		Short: "Show in what machines differ from what they are to have",
		Long: "Show in what machines differ from what they are to have: lines with - are what Ichor renders, lines with + what the machine runs. " +
			"Without names, all approved machines are looked at.\n\n" +
			"The exit status is 0 if nothing differs, 1 if something does, and above 1 if that could not be found out.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			ichor machine drift
			ichor machine drift worker-3 -o json
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, isApproved),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.BesidesDiffers(options.run(cmd.Context(), args))
		},
	}
	options.print.AddFlags(cmd)
	return cmd
}

func isApproved(machine *v1alpha1.TalosMachine) bool {
	return machine.Spec.ApprovalState == v1alpha1.ApprovalApproved
}

func (o *driftOptions) run(ctx context.Context, args []string) error {
	if err := o.print.Check(); err != nil {
		return err
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machines, err := o.machines(ctx, client, args)
	if err != nil {
		return err
	}
	drifts := make([]*v1alpha1.TalosMachineDrift, len(machines))
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, machine := range machines {
		group.Go(func() error {
			drifts[i] = &v1alpha1.TalosMachineDrift{}
			return client.IchorV1alpha1().RESTClient().Get().Resource("talosmachines").Name(machine.Name).SubResource("drift").Do(inGroup).Into(drifts[i])
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := o.show(machines, drifts); err != nil {
		return err
	}
	unknown := 0
	for _, drift := range drifts {
		switch {
		case drift.Count > 0:
			return cli.ErrDiffers
		case drift.State == stateUnknown:
			unknown++
		}
	}
	if unknown > 0 {
		return fmt.Errorf("%d of %s could not be compared, see above", unknown, screen.Plural(len(machines), "machine", "machines"))
	}
	return nil
}

// machines are those that are named, or all that are approved.
func (o *driftOptions) machines(ctx context.Context, client versioned.Interface, args []string) ([]*v1alpha1.TalosMachine, error) {
	if len(args) > 0 {
		return fetchAll(ctx, client, args)
	}
	all, err := lookup.Machines(ctx, client, metav1.ListOptions{FieldSelector: "spec.approvalState=" + string(v1alpha1.ApprovalApproved)})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no machine is approved, so there is nothing to compare")
	}
	var machines []*v1alpha1.TalosMachine
	for i := range all {
		machines = append(machines, &all[i])
	}
	return machines, nil
}

func (o *driftOptions) show(machines []*v1alpha1.TalosMachine, drifts []*v1alpha1.TalosMachineDrift) error {
	if o.print.Asked() {
		if len(drifts) == 1 {
			return o.print.Print(o.env, drifts[0], "")
		}
		list, err := listOf(v1alpha1.SchemeGroupVersion.WithKind("TalosMachineDrift"), drifts)
		if err != nil {
			return err
		}
		return o.print.Print(o.env, list, "")
	}
	for i, drift := range drifts {
		if _, err := fmt.Fprint(o.env.Out, screen.Drift(screen.MachineTitle(machines[i]), drift, o.env.OutStyle())); err != nil {
			return err
		}
	}
	return nil
}

// listOf is a list of objects of a kind that has no list of its own.
func listOf[T runtime.Object](kind schema.GroupVersionKind, objects []T) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "List"})
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("print a %s: %w", kind.Kind, err)
		}
		item := unstructured.Unstructured{Object: content}
		item.SetGroupVersionKind(kind)
		list.Items = append(list.Items, item)
	}
	return list, nil
}
