// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

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

// schematic is an id of the Image Factory.
var schematic = regexp.MustCompile(`^[0-9a-f]{64}$`)

// talos is one call of "ichor upgrade talos".
type talos struct {
	env           *cli.Env
	to, schematic string
	start         *operate.Start
	// is what the cluster was to have before.
	is string
}

func newTalos(env *cli.Env) *cobra.Command {
	t := &talos{env: env}
	t.start = operate.NewStart(env, operate.Kind{
		Name: "talos", Verb: "Upgrade Talos on",
		Set: func(spec *v1alpha1.TalosOperationSpec) {
			spec.TalosUpgrade = &v1alpha1.TalosUpgrade{Version: t.to, SchematicID: t.schematic}
		},
		Judge: t.judge, Before: t.intend,
		About: func(machine *v1alpha1.TalosMachine) string {
			return cmp.Or(machine.Status.TalosVersion, "unknown") + " → " + t.target()
		},
	})
	cmd := &cobra.Command{
		Use:   "talos NAME... | --all | -l SELECTOR",
		Short: "Upgrade Talos on machines one at a time, drained, and never at the cost of etcd's quorum",
		Long: "Upgrade Talos. All machines pull the installer first: an image that one of them can't have stops it before anything is cordoned. Then each machine " +
			"is drained, installed, rebooted, and held against the version that was meant, before the next is begun, control planes first. Each keeps its " +
			"schematic, and with it its extensions. A machine that comes back with the old version stops it.\n\n" +
			"Without --to the machines get what the cluster is to have (spec.talosVersion of the TalosCluster). With --to and --all that is changed first, so " +
			"that new machines get the version, too. With --to and names or -l it stays: those machines go ahead of the others, and an upgrade without --to takes the others along later.\n\n" +
			operate.StartHelp + "\n\n" + operate.PlanHelp,
		Example: cli.Examples(env, `
			# What would be done, in which order?
			ichor upgrade talos --to v1.13.9 --all --plan

			# One machine ahead of the others, then all.
			ichor upgrade talos --to v1.13.9 worker-3
			ichor upgrade talos --to v1.13.9 --all
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, func(machine *v1alpha1.TalosMachine) bool {
			return machine.Spec.ApprovalState == v1alpha1.ApprovalApproved
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(); err != nil {
				return err
			}
			if err := t.start.Check(cmd, args); err != nil {
				return err
			}
			return t.start.Run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&t.to, "to", "", "The version to upgrade to, for instance v1.13.9; the cluster's if not given.")
	cmd.Flags().StringVar(&t.schematic, "schematic", "", "The Image Factory's schematic to install, 64 hexadecimal digits; each machine's own if not given.")
	t.start.AddFlags(cmd)
	return cmd
}

func (t *talos) check() error {
	if t.to != "" {
		if _, err := version.ParseSemantic(t.to); err != nil || t.to[0] != 'v' {
			return cli.Usagef("--to: %q is no version of the form v1.13.9", t.to)
		}
	}
	if t.schematic != "" && !schematic.MatchString(t.schematic) {
		return cli.Usagef("--schematic: %q is no schematic of the Image Factory: 64 hexadecimal digits", t.schematic)
	}
	return nil
}

// target is the version that the machines get.
func (t *talos) target() string { return cmp.Or(t.to, t.is) }

// judge refuses what the plan would refuse, before the cluster's version is changed for it.
func (t *talos) judge(ctx context.Context, client versioned.Interface, cluster string, machines []*v1alpha1.TalosMachine) error {
	found, err := client.IchorV1alpha1().TalosClusters().Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return err
	}
	t.is = found.Spec.TalosVersion
	var refused []error
	if err := machineconfig.CheckKubernetesOn(found.Spec.KubernetesVersion, t.target()); err != nil {
		refused = append(refused, fmt.Errorf("%w; upgrade Kubernetes first, or choose another version of Talos", err))
	}
	for _, machine := range machines {
		if machine.Status.TalosVersion == "" {
			continue // the plan says that it isn't known
		}
		if err := machineconfig.CheckUpgradePath(machine.Status.TalosVersion, t.target()); err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", screen.MachineTitle(machine), err))
		}
	}
	if len(refused) > 0 {
		return cli.WithCode(cli.ExitBlocked, errors.Join(refused...))
	}
	if t.movesCluster() {
		t.env.Infof("Cluster %s is to have Talos %s, and gets %s as its spec.talosVersion: new machines are installed with it.", cluster, t.is, t.to)
	}
	return nil
}

// movesCluster tells whether the cluster is to have another version from now on.
func (t *talos) movesCluster() bool { return t.start.All() && t.to != "" && t.to != t.is }

// intend writes what the cluster is to have, which moves no machine.
func (t *talos) intend(ctx context.Context, client versioned.Interface, cluster string, dryRun []string) error {
	if !t.movesCluster() {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"talosVersion": t.to}})
	if err != nil {
		return err
	}
	_, err = client.IchorV1alpha1().TalosClusters().Patch(ctx, cluster, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun, FieldManager: cli.FieldManager})
	return err
}
