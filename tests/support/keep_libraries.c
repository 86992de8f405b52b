/* For builds with the leak checker: keeps libraries loaded, so that reports name the library. Open
 * MPI unloads its plug-ins in MPI_Finalize, and their leaks could not be suppressed by name. */
int dlclose(void *handle);

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
