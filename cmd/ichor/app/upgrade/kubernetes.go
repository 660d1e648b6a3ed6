// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/operate"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/machineconfig"
)

// kubernetes is one call of "ichor upgrade kubernetes".
type kubernetes struct {
	env   *cli.Env
	to    string
	start *operate.Start
	// is what the cluster was to have before.
	is string
}

func newKubernetes(env *cli.Env) *cobra.Command {
	k := &kubernetes{env: env}
	k.start = operate.NewStart(env, operate.Kind{
		Name: "kubernetes", Verb: "Upgrade Kubernetes on",
		Set: func(spec *v1alpha1.TalosOperationSpec) {
			spec.KubernetesUpgrade = &v1alpha1.KubernetesUpgrade{Version: k.to}
		},
		Judge: k.judge, Before: k.intend,
		About: func(machine *v1alpha1.TalosMachine) string {
			is := "unknown"
			if settled := machine.Status.SettledVersions; settled != nil {
				is = settled.Kubernetes
			}
			return is + " → " + k.target()
		},
	})
	cmd := &cobra.Command{
		Use:   "kubernetes NAME... | --all | -l SELECTOR",
		Short: "Upgrade Kubernetes: component by component over the control planes, then the kubelets, drained",
		Long: "Upgrade Kubernetes. What keeps it from going is found out first: a minor version left out, versions that don't go together, a Talos that doesn't run " +
			"it, flags and feature gates of patches that the new version doesn't know. All machines pull the images; then kube-apiserver, kube-controller-manager and " +
			"kube-scheduler go through the control planes, one after the other, and then each machine's kubelet is upgraded on its drained Node. No machine reboots.\n\n" +
			"Without --to the machines get what the cluster is to have (spec.kubernetesVersion of the TalosCluster). With --to and --all that is changed first, so " +
			"that new machines get the version, too.\n\n" + operate.StartHelp + "\n\n" + operate.PlanHelp,
		Example: cli.Examples(env, `
			# What would be done, and what stands in the way?
			ichor upgrade kubernetes --to v1.37.2 --all --plan

			ichor upgrade kubernetes --to v1.37.2 --all
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, func(machine *v1alpha1.TalosMachine) bool {
			return machine.Spec.ApprovalState == v1alpha1.ApprovalApproved
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.check(); err != nil {
				return err
			}
			if err := k.start.Check(cmd, args); err != nil {
				return err
			}
			return k.start.Run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&k.to, "to", "", "The version to upgrade to, for instance v1.37.2; the cluster's if not given.")
	k.start.AddFlags(cmd)
	return cmd
}

func (k *kubernetes) check() error {
	if k.to == "" {
		return nil
	}
	if _, err := version.ParseSemantic(k.to); err != nil || k.to[0] != 'v' {
		return cli.Usagef("--to: %q is no version of the form v1.37.2", k.to)
	}
	return nil
}

// target is the version that the machines get.
func (k *kubernetes) target() string { return cmp.Or(k.to, k.is) }

// judge refuses what the plan would refuse for the machines' Talos, before the cluster's version is changed for it.
func (k *kubernetes) judge(ctx context.Context, client versioned.Interface, cluster string, machines []*v1alpha1.TalosMachine) error {
	found, err := client.IchorV1alpha1().TalosClusters().Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return err
	}
	k.is = found.Spec.KubernetesVersion
	var refused []error
	if err := machineconfig.CheckKubernetesOn(k.target(), found.Spec.TalosVersion); err != nil {
		refused = append(refused, fmt.Errorf("spec.talosVersion of cluster %s: %w; upgrade Talos first", cluster, err))
	}
	for _, machine := range machines {
		if machine.Status.TalosVersion == "" {
			continue // the plan says that it isn't known
		}
		if err := machineconfig.CheckKubernetesOn(k.target(), machine.Status.TalosVersion); err != nil {
			refused = append(refused, fmt.Errorf("%s: %w; upgrade Talos first", screen.MachineTitle(machine), err))
		}
	}
	if was, err := version.ParseSemantic(k.is); err == nil {
		is, err := version.ParseSemantic(k.target())
		switch {
		case err != nil:
		case is.LessThan(was):
			refused = append(refused, fmt.Errorf("cluster %s is to have Kubernetes %s, and %s is older: Kubernetes can't be taken back", cluster, k.is, k.target()))
		case is.Minor() > was.Minor()+1:
			refused = append(refused, fmt.Errorf("cluster %s is to have Kubernetes %s: upgrade to v1.%d first, as Kubernetes goes up by one minor version at a time", cluster, k.is, was.Minor()+1))
		}
	}
	if len(refused) > 0 {
		return cli.WithCode(cli.ExitBlocked, errors.Join(refused...))
	}
	if k.movesCluster() {
		k.env.Infof("Cluster %s is to have Kubernetes %s, and gets %s as its spec.kubernetesVersion: new machines are installed with it.", cluster, k.is, k.to)
	}
	return nil
}

// movesCluster tells whether the cluster is to have another version from now on.
func (k *kubernetes) movesCluster() bool { return k.start.All() && k.to != "" && k.to != k.is }

// intend writes what the cluster is to have, which moves no machine.
func (k *kubernetes) intend(ctx context.Context, client versioned.Interface, cluster string, dryRun []string) error {
	if !k.movesCluster() {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"kubernetesVersion": k.to}})
	if err != nil {
		return err
	}
	_, err = client.IchorV1alpha1().TalosClusters().Patch(ctx, cluster, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun, FieldManager: cli.FieldManager})
	return err
}
