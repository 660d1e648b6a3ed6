// SPDX-License-Identifier: Apache-2.0

package talosclusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/verbs"
)

// Causes of refusals, for programs.
const (
	// CauseOnlyOneCluster says that this version manages the cluster it runs in and no other.
	CauseOnlyOneCluster metav1.CauseType = "OnlyOneCluster"
	// CauseClusterInUse says that machines belong to the cluster.
	CauseClusterInUse metav1.CauseType = "ClusterInUse"
	// CauseLocked says that the cluster, or a machine of it, is locked.
	CauseLocked metav1.CauseType = "Locked"
	// CauseOperationRunning says that an operation works on the cluster.
	CauseOperationRunning metav1.CauseType = "OperationRunning"
)

// REST is the main resource. What needs a verb of Ichor's own or another object is checked on the final object, after
// mutating admission, inside the store's transaction.
type REST struct {
	*genericregistry.Store
	deps Dependencies
}

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
	_ rest.CategoriesProvider = &REST{}
)

// Strategy is how the resource changes objects.
func (r *REST) Strategy() rest.RESTUpdateStrategy { return r.UpdateStrategy }

// ShortNames is what people type.
func (*REST) ShortNames() []string { return []string{"tc"} }

// Categories puts clusters into "kubectl get ichor".
func (*REST) Categories() []string { return []string{"ichor"} }

// Create makes a cluster.
func (r *REST) Create(ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	out, err := r.Store.Create(ctx, obj, r.creating(createValidation), options)
	if err != nil || dryrun.IsDryRun(options.DryRun) {
		return out, err
	}
	return out, r.confirmOnlyOne(ctx, out.(*ichor.TalosCluster))
}

// Update changes what people may change. Server-side apply creates through it.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	checked := func(ctx context.Context, obj, old runtime.Object) error {
		if updateValidation != nil {
			if err := updateValidation(ctx, obj, old); err != nil {
				return err
			}
		}
		cluster, was := obj.(*ichor.TalosCluster), old.(*ichor.TalosCluster)
		if err := r.checkDestroy(ctx, cluster, was.Spec.DeletionPolicy); err != nil {
			return err
		}
		return r.checkCNI(ctx, cluster, was.Spec.CNI)
	}
	out, created, err := r.Store.Update(ctx, name, objInfo, r.creating(createValidation), checked, forceAllowCreate, options)
	if err != nil || !created || dryrun.IsDryRun(options.DryRun) {
		return out, created, err
	}
	return out, created, r.confirmOnlyOne(ctx, out.(*ichor.TalosCluster))
}

// Delete removes a cluster that no machine belongs to, or with all its machines if spec.deletionPolicy says so.
func (r *REST) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.Store.Delete(ctx, name, r.deleting(deleteValidation, false), options)
}

// DeleteCollection removes clusters that no machine belongs to.
func (r *REST) DeleteCollection(ctx context.Context, deleteValidation rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	listOptions *metainternalversion.ListOptions,
) (runtime.Object, error) {
	return r.Store.DeleteCollection(ctx, r.deleting(deleteValidation, true), options, listOptions)
}

func (r *REST) creating(createValidation rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if createValidation != nil {
			if err := createValidation(ctx, obj); err != nil {
				return err
			}
		}
		cluster := obj.(*ichor.TalosCluster)
		if err := r.checkDestroy(ctx, cluster, ichor.ClusterDeletionRefuse); err != nil {
			return err
		}
		if err := r.checkCNI(ctx, cluster, ichor.CNI{}); err != nil {
			return err
		}
		return r.checkOnlyOne(ctx, cluster.Name)
	}
}

// checkCNI asks for the verb "configure" if the network plugin or its values change: they run as root on every node.
func (r *REST) checkCNI(ctx context.Context, cluster *ichor.TalosCluster, was ichor.CNI) error {
	if apiequality.Semantic.DeepEqual(cluster.Spec.CNI, was) {
		return nil
	}
	return r.deps.Checker.Require(ctx, verbs.ConfigureCNI, cluster.Name)
}

// checkDestroy asks for the verb "remove" if deleting the cluster is to wipe its machines from now on: the consent to that
// is a person's who may remove them, so that nobody else makes another's deletion a destruction.
func (r *REST) checkDestroy(ctx context.Context, cluster *ichor.TalosCluster, was ichor.ClusterDeletionPolicy) error {
	if cluster.Spec.DeletionPolicy != ichor.ClusterDeletionDestroy || was == ichor.ClusterDeletionDestroy {
		return nil
	}
	return r.deps.Checker.Require(ctx, verbs.Remove, "")
}

// checkOnlyOne refuses a second cluster: everything on the way to a machine's Kubernetes API assumes the own one.
func (r *REST) checkOnlyOne(ctx context.Context, name string) error {
	obj, err := r.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return fmt.Errorf("list clusters: %w", err)
	}
	for _, other := range obj.(*ichor.TalosClusterList).Items {
		if other.Name != name {
			return refuse(name, CauseOnlyOneCluster, "metadata.name", fmt.Sprintf("cluster %q exists, and Ichor manages only the cluster that it runs in", other.Name))
		}
	}
	return nil
}

// confirmTimeout bounds the second look at a cluster that was just made.
const confirmTimeout = 10 * time.Second

// confirmOnlyOne looks again after the creation: two that are made at the same time don't see each other before. Each
// that then finds another takes itself back, so at most one is left; whoever is refused tries again.
func (r *REST) confirmOnlyOne(ctx context.Context, made *ichor.TalosCluster) error {
	// Whoever asked may have gone by now; two clusters must not stay for that.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	refused := r.checkOnlyOne(ctx, made.Name)
	if refused == nil || !apierrors.IsForbidden(refused) {
		return refused
	}
	key, err := r.KeyFunc(ctx, made.Name)
	if err != nil {
		return err
	}
	err = r.Storage.Delete(ctx, key, &ichor.TalosCluster{}, storage.NewUIDPreconditions(string(made.UID)), rest.ValidateAllObjectFunc, false, nil, storage.DeleteOptions{})
	if err != nil && !storage.IsNotFound(err) {
		return fmt.Errorf("take back cluster %s, which was made beside another: %w", made.Name, err)
	}
	return refused
}

func refuse(name string, cause metav1.CauseType, field, message string) error {
	status := apierrors.NewForbidden(ichor.Resource("talosclusters"), name, errors.New(message))
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause, Message: message, Field: field})
	return status
}
