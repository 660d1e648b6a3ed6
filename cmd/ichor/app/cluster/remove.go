// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// removeTimeout is how long the end of a cluster is watched.
const removeTimeout = time.Hour

type removeOptions struct {
	env             *cli.Env
	orphan, destroy bool
	consent         string
	wait            progress.Wait
	asker           func() prompt.Asker
}

func newRemove(env *cli.Env) *cobra.Command {
	options := &removeOptions{env: env, asker: func() prompt.Asker {
		if env.CanRedraw() {
			return prompt.NewPages(env.In, env.ErrOut)
		}
		return prompt.NewLines(env.In, env.ErrOut)
	}}
	cmd := &cobra.Command{
		Use:   "remove NAME (--orphan | --destroy)",
		Short: "Let a cluster go as it is, or wipe all its machines",
		Long: `Remove a cluster from Ichor. One that machines belong to is removed only

  with --orphan: the objects of the cluster and its machines go, nothing is written to any machine, and the cluster runs on
  by itself. Its Secret with the secrets bundle stays.

  with --destroy: the workers are wiped, then the control planes one by one, the last one too. Nothing is drained. With the
  last control plane the Kubernetes API ends where it lived on it, and with it this object: nothing can tell then that it is
  done, but that the machine waits in maintenance mode. A machine that doesn't answer holds all this up until it is given up:
  "machine remove --force". To stop, set spec.deletionPolicy to Orphan: what isn't wiped by then stays as it is.

Both need the cluster's name, typed as consent, or --consent.`,
		Example: cli.Examples(env, `
			ichor cluster remove lab --orphan
			ichor cluster remove lab --destroy --consent lab
		`),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: lookup.CompleteClusters(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.check(); err != nil {
				return err
			}
			return options.run(cmd.Context(), lookup.ObjectName(args[0]))
		},
	}
	cmd.Flags().BoolVar(&options.orphan, "orphan", false, "Write nothing to any machine.")
	cmd.Flags().BoolVar(&options.destroy, "destroy", false, "Wipe all machines.")
	cmd.Flags().StringVar(&options.consent, "consent", "", "The cluster's name, as consent where nobody can be asked.")
	options.wait.AddFlags(cmd, "the machines' objects are gone", removeTimeout)
	return cmd
}

func (o *removeOptions) check() error {
	if o.orphan && o.destroy {
		return cli.Usagef("say either --orphan or --destroy")
	}
	return o.wait.Check()
}

func (o *removeOptions) run(ctx context.Context, name string) error {
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	cluster, err := client.IchorV1alpha1().TalosClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	machines, err := lookup.Machines(ctx, client, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var members []*v1alpha1.TalosMachine
	for i := range machines {
		if machines[i].Spec.ClusterRef.Name == name {
			members = append(members, &machines[i])
		}
	}
	if len(members) > 0 && !o.orphan && !o.destroy {
		return cli.WithCode(cli.ExitBlocked, fmt.Errorf("%s of cluster %s: say --orphan to let them go as they are, or --destroy to wipe them", screen.Plural(len(members), "machine is", "machines are"), name))
	}
	if err := o.confirm(ctx, cluster, members); err != nil {
		return err
	}
	if err := o.remove(ctx, client, cluster); err != nil {
		return err
	}
	return o.follow(ctx, client, name, members)
}

// confirm shows what happens to which machines, and wants the cluster's name, typed.
func (o *removeOptions) confirm(ctx context.Context, cluster *v1alpha1.TalosCluster, members []*v1alpha1.TalosMachine) error {
	what := "is left as it is"
	if o.destroy {
		what = "IS WIPED"
	}
	for _, machine := range members {
		if machine.Spec.ApprovalState == v1alpha1.ApprovalApproved {
			o.env.Infof("  %s %s", screen.MachineTitle(machine), what)
		}
	}
	typed := o.consent
	if typed == "" && !o.env.CanAsk() {
		return cli.Usagef("nobody can be asked here whether cluster %s may go; say --consent with its name", cluster.Name)
	}
	if typed == "" {
		answers, err := o.asker().Ask(ctx, []prompt.Page{{Title: "Remove cluster " + cluster.Name, Questions: []prompt.Question{{
			Key: "name", Title: "Type the cluster's name",
		}}}})
		if err != nil {
			return cli.Cancelled()
		}
		typed = answers["name"]
	}
	if strings.TrimSpace(typed) != cluster.Name {
		return cli.WithCode(cli.ExitUsage, fmt.Errorf("%q isn't the cluster's name, %s; nothing was changed", typed, cluster.Name))
	}
	return nil
}

// remove writes what becomes of the machines, and deletes the object: the very one that was shown.
func (o *removeOptions) remove(ctx context.Context, client versioned.Interface, cluster *v1alpha1.TalosCluster) error {
	clusters := client.IchorV1alpha1().TalosClusters()
	var err error
	switch {
	case o.orphan:
		err = setPolicy(ctx, client, cluster, v1alpha1.ClusterDeletionOrphan, "")
	case o.destroy:
		err = setPolicy(ctx, client, cluster, v1alpha1.ClusterDeletionDestroy, cluster.Name)
	}
	if err != nil {
		return err
	}
	if err := clusters.Delete(ctx, cluster.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cluster.UID}}); err != nil {
		return o.takeBack(ctx, client, cluster, err)
	}
	_, err = fmt.Fprintf(o.env.Out, "taloscluster.%s/%s is being removed\n", v1alpha1.GroupName, cluster.Name)
	return err
}

// setPolicy writes what becomes of the machines, and the consent to that.
func setPolicy(ctx context.Context, client versioned.Interface, cluster *v1alpha1.TalosCluster, policy v1alpha1.ClusterDeletionPolicy, consent string) error {
	spec := map[string]any{"deletionPolicy": policy, "deletionConsent": nil}
	if consent != "" {
		spec["deletionConsent"] = consent
	}
	if policy == "" {
		spec["deletionPolicy"] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": cluster.UID}, "spec": spec})
	if err != nil {
		return err
	}
	_, err = client.IchorV1alpha1().TalosClusters().Patch(ctx, cluster.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: cli.FieldManager})
	return err
}

// takeBack puts the policy back as it was where the server refused the deletion: a consent that stays would be one to the
// next deletion, whoever asks for it.
func (o *removeOptions) takeBack(ctx context.Context, client versioned.Interface, cluster *v1alpha1.TalosCluster, refused error) error {
	if answer := apierrors.APIStatus(nil); !o.orphan && !o.destroy || !errors.As(refused, &answer) {
		return refused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	if err := setPolicy(ctx, client, cluster, cluster.Spec.DeletionPolicy, cluster.Spec.DeletionConsent); err != nil {
		return errors.Join(refused, fmt.Errorf("and spec.deletionPolicy of cluster %s could not be put back to %q: %w", cluster.Name, cluster.Spec.DeletionPolicy, err))
	}
	return refused
}

// follow shows the machines go.
func (o *removeOptions) follow(ctx context.Context, client versioned.Interface, name string, members []*v1alpha1.TalosMachine) error {
	again := fmt.Sprintf("%s cluster show %s", o.env.Name, name)
	if len(members) == 0 {
		return nil
	}
	if !o.wait.Wanted(o.env) {
		o.env.Infof("Watch it with: %s", again)
		return nil
	}
	board := progress.NewRemoval(progress.Names(members))
	return o.wait.Follow(ctx, o.env, board, progress.WatchMachines(client, board, o.env.Now), again)
}
